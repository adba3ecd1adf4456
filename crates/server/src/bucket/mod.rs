//! An archive in a bucket: `wal::archive::Objects` over S3's protocol.
//!
//! ```text
//! put      PUT    key               the whole object in one request, with the hash of its bytes
//!          POST   key?uploads       of a larger object: an upload in parts is begun
//!          PUT    key?partNumber    each part, with the hash of its bytes; one is in memory at a time
//!          POST   key?uploadId      the parts become the object; DELETE instead where one of them failed
//! read     GET    key, Range        more than was asked for where a reader goes on
//! len      HEAD   key
//! list     GET    list-type=2       below a prefix, up to the next slash; a thousand names a page
//! remove   DELETE key
//! ```
//! **Whole or not at all.** S3 shows an object when it has all bytes of a PUT and they have the hash that the request was signed with, and one in parts when
//! all of them are put together. So an object never appears in part, and no temporary name is needed. All requests can be made twice: a second PUT writes
//! the same bytes. An upload whose end is not reached, as when the process is killed, leaves parts that no listing shows. A rule of the bucket removes them
//! (`AbortIncompleteMultipartUpload`).
//!
//! **What fails.** A lost connection, a time limit, and the answers 429, 500, 502, 503 and 504 may pass: the request is made again, [`ATTEMPTS`] times
//! in all. Other answers are final. Each request has a time limit, [`Limits`].
//!
//! | answer | kind of error |
//! |---|---|
//! | 401, 403, 400 of a token that has ended | `PermissionDenied` |
//! | 404 of an object | `NotFound` |
//! | 404 of the bucket | `NotADirectory` |
//! | others | `Other` |
//!
//! Errors name the bucket, the status, and S3's code and message. Keys and signatures are in no message. Keys that are refused are read again from their
//! file, if they have one. Where it has others, the request is made with them.
//!
//! Left out on purpose: several parts at a time; credentials from the machine's metadata service.

mod access;
mod listing;
mod sign;

pub use access::{Access, Keys, Place};

use env::Clock;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;
use ureq::Body;
use ureq::http::Response;
use wal::Objects;

/// How often a request is made at most.
const ATTEMPTS: u32 = 4;
/// What S3 takes as one object, and in how many parts.
const MOST_BYTES: u64 = 5 << 40;
const MOST_PARTS: u64 = 10_000;
/// What is read at once where a reader goes on.
const AHEAD: usize = 8 << 20;
/// The longest answer that is no object.
const MOST_ANSWER: u64 = 16 << 20;

/// How long a request may take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Until there is a connection.
    pub connect: Duration,
    /// From the first byte to the last, beside what the bytes of the object take at 1 MiB/s.
    pub request: Duration,
    /// Before the second attempt. Each further pause is four times as long.
    pub pause: Duration,
    /// Bytes of a part. What is not longer goes in one request.
    pub part: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(30),
            pause: Duration::from_millis(200),
            part: 64 << 20,
        }
    }
}

/// The bytes of an object that were read last.
#[derive(Default)]
struct Block {
    name: String,
    offset: u64,
    bytes: Vec<u8>,
}

impl Block {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Whether these bytes, or those that follow them, are at `offset`.
    fn leads_to(&self, name: &str, offset: u64) -> bool {
        self.name == name && (self.offset..=self.end()).contains(&offset)
    }
}

/// See the head of the file.
pub struct Bucket {
    place: Place,
    access: Access,
    agent: ureq::Agent,
    limits: Limits,
    clock: Arc<dyn Clock>,
    last: Mutex<Block>,
}

/// One request.
struct Asked<'a> {
    method: &'static str,
    key: String,
    /// Parameters, ascending.
    query: Vec<(&'static str, String)>,
    range: Option<(u64, usize)>,
    body: &'a [u8],
    /// Bytes of objects that go to and fro: they add to the time limit.
    bytes: u64,
}

impl Asked<'_> {
    fn new(method: &'static str, key: String) -> Self {
        Asked {
            method,
            key,
            query: Vec::new(),
            range: None,
            body: &[],
            bytes: 0,
        }
    }
}

/// What came of one attempt.
enum Failed {
    /// It may go well the next time.
    Passing(io::Error),
    Final(io::Error),
}

type Attempt<T> = std::result::Result<T, Failed>;

/// An error below HTTP's answers.
fn broken(e: ureq::Error) -> Failed {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Protocol, Timeout};
    let kind = match &e {
        Timeout(_) => ErrorKind::TimedOut,
        Io(e) => e.kind(),
        _ => ErrorKind::Other,
    };
    let passing = matches!(
        e,
        Timeout(_) | Io(_) | ConnectionFailed | HostNotFound | Protocol(_)
    );
    // What a caller takes for an object that is not there is an answer of S3 and nothing else.
    let kind = match kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
            ErrorKind::Other
        }
        kind => kind,
    };
    let error = io::Error::new(kind, e.to_string());
    match passing {
        true => Failed::Passing(error),
        false => Failed::Final(error),
    }
}

/// An answer that says no.
fn refused(status: u16, body: &str) -> Failed {
    let code = listing::text_of(body, "Code").unwrap_or_default();
    let message = listing::text_of(body, "Message").unwrap_or_default();
    let kind = match (status, code.as_str()) {
        (401 | 403, _) | (400, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            ErrorKind::PermissionDenied
        }
        (404, "NoSuchBucket") => ErrorKind::NotADirectory,
        (404, _) => ErrorKind::NotFound,
        _ => ErrorKind::Other,
    };
    let mut what = format!("the answer is {status}");
    for more in [code, message].iter().filter(|m| !m.is_empty()) {
        what = format!("{what}, {more}");
    }
    let error = io::Error::new(kind, what);
    match status {
        429 | 500 | 502 | 503 | 504 => Failed::Passing(error),
        _ => Failed::Final(error),
    }
}

/// The text of an answer that is no object.
fn text(response: &mut Response<Body>) -> Attempt<String> {
    let body = response.body_mut().with_config().limit(MOST_ANSWER);
    let bytes = body.read_to_vec().map_err(broken)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Bucket {
    pub fn new(place: Place, access: Access, limits: Limits, clock: Arc<dyn Clock>) -> Bucket {
        let mut tls = ureq::tls::TlsConfig::builder();
        if let Some(roots) = &access.roots {
            tls = tls.root_certs(roots.clone());
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(limits.connect))
            .tls_config(tls.build())
            .user_agent("canon")
            .build();
        Bucket {
            place,
            access,
            agent: config.into(),
            limits,
            clock,
            last: Mutex::default(),
        }
    }

    fn key(&self, name: &str) -> String {
        self.place.key(name)
    }

    /// Makes a request until it goes well, at most [`ATTEMPTS`] times.
    fn request<T>(
        &self,
        asked: &Asked<'_>,
        take: impl Fn(Response<Body>) -> Attempt<T>,
    ) -> io::Result<T> {
        let mut pause = self.limits.pause;
        let mut renewed = false;
        for attempt in 1.. {
            let keys = self.access.keys();
            let (error, last) = match self.attempt(asked, &keys).and_then(&take) {
                Ok(done) => return Ok(done),
                Err(Failed::Final(e)) if e.kind() == ErrorKind::PermissionDenied => {
                    if !std::mem::replace(&mut renewed, true) && self.access.has_newer(&keys) {
                        continue;
                    }
                    (e, true)
                }
                Err(Failed::Final(e)) => (e, true),
                Err(Failed::Passing(e)) => (e, attempt >= ATTEMPTS),
            };
            if last {
                let times = match attempt {
                    1 => String::new(),
                    n => format!(" ({n} attempts)"),
                };
                let what = format!("{} at {}: {error}{times}", self.place, self.access.host());
                return Err(io::Error::new(error.kind(), what));
            }
            std::thread::sleep(pause);
            pause *= 4;
        }
        unreachable!("the last attempt returns")
    }

    fn attempt(&self, asked: &Asked<'_>, keys: &Keys) -> Attempt<Response<Body>> {
        let stamp = sign::stamp(self.clock.unix_micros());
        let mut headers = vec![
            ("host", self.access.host_of(&self.place.bucket)),
            (
                "x-amz-content-sha256",
                sign::hex(&Sha256::digest(asked.body)),
            ),
            ("x-amz-date", stamp.clone()),
        ];
        if let Some((from, n)) = asked.range {
            headers.push(("range", format!("bytes={from}-{}", from + n as u64 - 1)));
        }
        if let Some(token) = &keys.token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        headers.sort_unstable();
        let path = self.access.path(&self.place.bucket, &asked.key);
        let query = sign::query(&asked.query);
        let signature = sign::authorization(
            &self.access.signer(keys),
            asked.method,
            &path,
            &query,
            &headers,
            &stamp,
        );
        let host = &headers[0].1;
        let mut uri = format!("{}://{host}{path}", self.access.scheme());
        if !query.is_empty() {
            uri += &format!("?{query}");
        }
        let mut request = ureq::http::Request::builder()
            .method(asked.method)
            .uri(uri)
            .header("authorization", signature);
        for (name, value) in &headers {
            request = request.header(*name, value);
        }
        let limit = self.limits.request + Duration::from_secs(asked.bytes >> 20);
        let response = match asked.method {
            "PUT" | "POST" => self.run(request.body(asked.body), limit),
            _ => self.run(request.body(()), limit),
        };
        let mut response = response?;
        let status = response.status().as_u16();
        let ends_before = status == 416 && asked.range.is_some();
        if !(200..300).contains(&status) && !ends_before {
            let body = match asked.method {
                "HEAD" => String::new(),
                _ => text(&mut response)?,
            };
            return Err(refused(status, &body));
        }
        Ok(response)
    }

    fn run<B: ureq::AsSendBody>(
        &self,
        request: ureq::http::Result<ureq::http::Request<B>>,
        limit: Duration,
    ) -> Attempt<Response<Body>> {
        let request = request.map_err(|e| Failed::Final(io::Error::other(e)))?;
        let request = self.agent.configure_request(request);
        let request = request.timeout_global(Some(limit)).build();
        self.agent.run(request).map_err(broken)
    }

    /// Reads what there is of `n` bytes at `offset`.
    fn fetch(&self, name: &str, offset: u64, n: usize) -> io::Result<Vec<u8>> {
        let mut asked = Asked::new("GET", self.key(name));
        (asked.range, asked.bytes) = (Some((offset, n)), n as u64);
        self.request(&asked, |mut response| {
            match response.status().as_u16() {
                // Nothing is there: the object ends before.
                416 => return Ok(Vec::new()),
                206 => {}
                other => {
                    let what = format!("a range was asked for, and the answer is {other}");
                    return Err(Failed::Final(io::Error::other(what)));
                }
            }
            let said = response.body().content_length();
            let mut bytes = Vec::with_capacity(n);
            let mut body = response.body_mut().as_reader().take(n as u64);
            body.read_to_end(&mut bytes).map_err(Failed::Passing)?;
            match said {
                Some(said) if said != bytes.len() as u64 => {
                    let what = format!("{said} bytes were promised, and {} came", bytes.len());
                    Err(Failed::Passing(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        what,
                    )))
                }
                _ => Ok(bytes),
            }
        })
    }

    /// What lies right below a folder: objects and folders.
    fn below(&self, folder: &str) -> io::Result<listing::Below> {
        let prefix = match folder {
            "" => self.key(""),
            folder => self.key(&format!("{folder}/")),
        };
        let mut all = listing::Below::default();
        let mut token: Option<String> = None;
        loop {
            let mut asked = Asked::new("GET", String::new());
            if let Some(token) = token {
                asked.query.push(("continuation-token", token));
            }
            asked.query.push(("delimiter", "/".into()));
            asked.query.push(("encoding-type", "url".into()));
            asked.query.push(("list-type", "2".into()));
            asked.query.push(("prefix", prefix.clone()));
            token = self
                .request(&asked, |mut response| {
                    let page = text(&mut response)?;
                    listing::page(&page, &prefix).map_err(|e| Failed::Final(io::Error::other(e)))
                })
                .map(|page| {
                    all.objects.extend(page.below.objects);
                    all.folders.extend(page.below.folders);
                    page.next
                })?;
            if token.is_none() {
                all.objects.sort_unstable();
                all.folders.sort_unstable();
                return Ok(all);
            }
        }
    }

    /// What is known of an object is no longer true.
    fn forget(&self, name: &str) {
        let mut last = self.last.lock();
        if last.name == name {
            *last = Block::default();
        }
    }
}

/// So many bytes at an offset, in one piece.
fn gather(
    piece: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
    at: u64,
    n: u64,
) -> io::Result<Vec<u8>> {
    let mut all = Vec::with_capacity(n as usize);
    while (all.len() as u64) < n {
        let have = all.len() as u64;
        all.append(&mut piece(at + have, n - have)?);
    }
    Ok(all)
}

/// Uploads in parts.
impl Bucket {
    fn begin_upload(&self, name: &str) -> io::Result<String> {
        let mut asked = Asked::new("POST", self.key(name));
        asked.query.push(("uploads", String::new()));
        self.request(&asked, |mut response| {
            let id = listing::text_of(&text(&mut response)?, "UploadId");
            let id = id.filter(|id| !id.is_empty());
            id.ok_or_else(|| Failed::Final(io::Error::other("the answer names no upload")))
        })
    }

    /// Sends a part: its tag.
    fn put_part(&self, name: &str, id: &str, number: u64, bytes: &[u8]) -> io::Result<String> {
        let mut asked = Asked::new("PUT", self.key(name));
        asked.query.push(("partNumber", number.to_string()));
        asked.query.push(("uploadId", id.to_owned()));
        (asked.body, asked.bytes) = (bytes, bytes.len() as u64);
        self.request(&asked, |mut response| {
            let tag = response.headers().get("etag");
            let tag = tag.and_then(|t| t.to_str().ok()).map(str::to_owned);
            text(&mut response)?;
            tag.ok_or_else(|| Failed::Final(io::Error::other("the answer to a part has no tag")))
        })
    }

    /// Makes the object of its parts.
    fn end_upload(&self, name: &str, id: &str, tags: &[String], len: u64) -> io::Result<()> {
        let mut body = String::from("<CompleteMultipartUpload>");
        for (n, tag) in tags.iter().enumerate() {
            let number = n + 1;
            body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        body += "</CompleteMultipartUpload>";
        let mut asked = Asked::new("POST", self.key(name));
        asked.query.push(("uploadId", id.to_owned()));
        (asked.body, asked.bytes) = (body.as_bytes(), len);
        let done = self.request(&asked, |mut response| {
            let said = text(&mut response)?;
            // The answer begins before the parts are put together, so what fails then comes as 200, too.
            match said.contains("<CompleteMultipartUploadResult") {
                true => Ok(()),
                false => Err(refused(500, &said)),
            }
        });
        match done {
            // An attempt before, whose answer was lost, may have done it.
            Err(e) if e.kind() == ErrorKind::NotFound && self.len(name).is_ok_and(|l| l == len) => {
                Ok(())
            }
            done => done,
        }
    }

    fn upload(
        &self,
        name: &str,
        len: u64,
        piece: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let part = self.limits.part.max(len.div_ceil(MOST_PARTS));
        let id = self.begin_upload(name)?;
        let mut tags = Vec::new();
        let mut send = || {
            for at in (0..len).step_by(part as usize) {
                let bytes = gather(piece, at, part.min(len - at))?;
                tags.push(self.put_part(name, &id, tags.len() as u64 + 1, &bytes)?);
            }
            self.end_upload(name, &id, &tags, len)
        };
        let sent = send();
        if sent.is_err() {
            let mut asked = Asked::new("DELETE", self.key(name));
            asked.query.push(("uploadId", id.clone()));
            // What is left then is for the bucket's rule.
            _ = self.request(&asked, |mut response| text(&mut response).map(drop));
        }
        sent
    }
}

impl Objects for Bucket {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u64;
        if len > self.limits.part {
            let piece = |at: u64, n: u64| Ok(bytes[at as usize..(at + n) as usize].to_vec());
            return self.put_pieces(name, len, &mut { piece });
        }
        self.forget(name);
        let mut asked = Asked::new("PUT", self.key(name));
        (asked.body, asked.bytes) = (bytes, len);
        self.request(&asked, |mut response| text(&mut response).map(drop))
    }

    fn put_pieces(
        &self,
        name: &str,
        len: u64,
        piece: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        if len > MOST_BYTES {
            let what =
                format!("{name} has {len} bytes, and a bucket takes objects of {MOST_BYTES}");
            return Err(io::Error::new(ErrorKind::FileTooLarge, what));
        }
        if len <= self.limits.part {
            return self.put(name, &gather(piece, 0, len)?);
        }
        self.forget(name);
        self.upload(name, len, piece)
    }

    fn read(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut done, mut goes_on) = (0, false);
        {
            let last = self.last.lock();
            if last.leads_to(name, offset) {
                goes_on = true;
                let from = &last.bytes[(offset - last.offset) as usize..];
                done = from.len().min(buf.len());
                buf[..done].copy_from_slice(&from[..done]);
            }
        }
        let left = buf.len() - done;
        if left == 0 {
            return Ok(done);
        }
        let at = offset + done as u64;
        let n = if goes_on { left.max(AHEAD) } else { left };
        let bytes = self.fetch(name, at, n)?;
        let taken = left.min(bytes.len());
        buf[done..done + taken].copy_from_slice(&bytes[..taken]);
        *self.last.lock() = Block {
            name: name.to_owned(),
            offset: at,
            bytes,
        };
        Ok(done + taken)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        let asked = Asked::new("HEAD", self.key(name));
        self.request(&asked, |response| {
            let len = response.headers().get("content-length");
            let len = len.and_then(|l| l.to_str().ok()?.parse().ok());
            len.ok_or_else(|| Failed::Final(io::Error::other("the answer tells no length")))
        })
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.below(folder)?.objects)
    }

    fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.below(folder)?.folders)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.forget(name);
        let asked = Asked::new("DELETE", self.key(name));
        self.request(&asked, |mut response| text(&mut response).map(drop))
    }
}

#[cfg(test)]
mod tests;
