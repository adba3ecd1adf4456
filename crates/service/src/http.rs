//! `/healthz`, `/readyz`, `/metrics` and a program's own pages: as much HTTP/1.1 as a probe, a scraper or a browser needs.
//!
//! ```text
//! accept ──▶ Probe::enter (TLS, if the program has it) ──▶ head of the request ──▶ a probe's answer
//!                                                                             └──▶ Probe::page, on a thread that may wait
//! ```
//! A probe is answered whatever strangers do: a server whose probes are not answered is killed. So a new connection always finds a place. Those that have not sent their request yet, and
//! those that have, stand in a room each ([`Room`]).
//!
//! | limit | value | beyond it |
//! |---|---|---|
//! | connections of a listener that have not sent a request | [`MOST`] | the oldest one is closed |
//! | those that have | [`MOST`] | the same |
//! | time of a connection, handshake and reply included | [`LIMIT`] | closed |
//! | head of a request | [`LONGEST`] | closed |
//! | pages that are made at once | [`PAGES`] | wait for their turn, within the time |
//!
//! Left out on purpose: bodies of requests, keep-alive, compression.

use crate::room::{Notice, Place, Room};
use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A connection, inside of TLS or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that a request can be read from.
pub struct Entered {
    pub stream: Box<dyn Stream>,
    /// Inside of TLS.
    pub secured: bool,
}

/// What comes of [`Probe::enter`].
pub type Entering = Pin<Box<dyn Future<Output = std::io::Result<Entered>> + Send>>;

/// What is asked of the server.
pub trait Probe: Send + Sync + 'static {
    /// Whether it serves, and reads at most this old; else why not.
    fn ready(&self, max_lag: Option<Duration>) -> Result<(), String>;
    /// All metrics, in Prometheus' text format.
    fn metrics(&self) -> String;
    /// A page of its own, which a GET or a HEAD asks for. May block its thread. None: there is no such page.
    fn page(&self, _request: &Request) -> Option<Reply> {
        None
    }
    /// Takes a new connection to where its request can be read.
    fn enter(&self, stream: TcpStream) -> Entering {
        Box::pin(async {
            Ok(Entered {
                stream: Box::new(stream),
                secured: false,
            })
        })
    }
}

/// A GET or a HEAD.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Without the query.
    pub path: String,
    /// Names in lower case, and values, in the order in which they came.
    pub headers: Vec<(String, String)>,
    pub peer: Option<SocketAddr>,
    /// It came inside of TLS.
    pub secured: bool,
    /// It is older than HTTP/1.1. Browsers ask so no more, and some proxies do.
    pub old: bool,
}

impl Request {
    /// The first value of a header; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|h| h.0 == name);
        found.map(|h| h.1.as_str())
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// `200 OK`
    pub status: &'static str,
    /// The type of the content.
    pub kind: &'static str,
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    pub body: Cow<'static, str>,
}

impl Reply {
    /// A line of text with this status.
    pub fn text(status: &'static str, line: &str) -> Reply {
        Reply::of(status, TEXT, format!("{line}\n"))
    }

    /// A body of this type.
    pub fn of(
        status: &'static str,
        kind: &'static str,
        body: impl Into<Cow<'static, str>>,
    ) -> Reply {
        Reply {
            status,
            kind,
            headers: Vec::new(),
            body: body.into(),
        }
    }
}

/// Connections of a listener at once that have not sent a request, and that have.
const MOST: usize = 128;
/// Pages that are made at once.
const PAGES: usize = 4;
/// Bytes of the head of a request.
const LONGEST: usize = 16 << 10;
const LIMIT: Duration = Duration::from_secs(10);
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers until the task is dropped.
pub async fn serve<P: Probe>(listener: TcpListener, probe: Arc<P>) {
    let (silent, asking) = (Room::of(MOST), Room::of(MOST));
    let pages = Arc::new(Semaphore::new(PAGES));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (probe, pages, asking) = (probe.clone(), pages.clone(), asking.clone());
                let place = silent.enter();
                tokio::spawn(async move {
                    let asked = async {
                        let mut entered = probe.enter(stream).await?;
                        let head = head(&mut entered).await?;
                        Ok((entered, head))
                    };
                    let answered = async {
                        let (mut entered, Some(head)) = unless_full(place, asked).await? else {
                            return Ok(());
                        };
                        let place = asking.enter();
                        let answered = answer(&mut entered, &head, Some(peer), &probe, &pages);
                        unless_full(place, answered).await
                    };
                    _ = tokio::time::timeout(LIMIT, answered).await;
                });
            }
            Err(e) => {
                tracing::warn!(error = %e, "could not accept an HTTP connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Does this in a place of a room; an error when the place is taken away before it is done.
async fn unless_full<T>(
    (_place, mut notice): (Place, Notice),
    done: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    tokio::select! {
        done = done => done,
        () = notice.given() => Err(std::io::ErrorKind::ConnectionAborted.into()),
    }
}

/// The head of a request; none: it does not end.
async fn head(entered: &mut Entered) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if head.len() > LONGEST || entered.stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

async fn answer<P: Probe>(
    entered: &mut Entered,
    head: &str,
    peer: Option<SocketAddr>,
    probe: &Arc<P>,
    pages: &Semaphore,
) -> std::io::Result<()> {
    let (method, query, mut request) = parse(head);
    (request.peer, request.secured) = (peer, entered.secured);
    let reply = match method {
        "GET" | "HEAD" => reply(request, query, probe, pages).await,
        _ => Reply {
            headers: vec![("Allow", "GET, HEAD".into())],
            ..Reply::text("405 Method Not Allowed", "GET or HEAD")
        },
    };
    let mut out = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
        reply.status,
        reply.kind,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        out += &format!("{name}: {value}\r\n");
    }
    out += "\r\n";
    if method != "HEAD" {
        out += &reply.body;
    }
    entered.stream.write_all(out.as_bytes()).await?;
    entered.stream.shutdown().await
}

/// Method, query and the rest of a request's head.
fn parse(head: &str) -> (&str, &str, Request) {
    let head = head.split_once("\r\n\r\n").map_or(head, |h| h.0);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let old = words.next() != Some("HTTP/1.1");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    let request = Request {
        path: path.to_owned(),
        headers: lines.filter_map(header).collect(),
        old,
        ..Request::default()
    };
    (method, query, request)
}

async fn reply<P: Probe>(
    request: Request,
    query: &str,
    probe: &Arc<P>,
    pages: &Semaphore,
) -> Reply {
    match request.path.as_str() {
        "/healthz" | "/livez" => Reply::text("200 OK", "ok"),
        "/readyz" => match max_lag(query).map(|lag| probe.ready(lag)) {
            Ok(Ok(())) => Reply::text("200 OK", "ready"),
            Ok(Err(why)) => Reply::text("503 Service Unavailable", &why),
            Err(why) => Reply::text("400 Bad Request", &why),
        },
        "/metrics" => Reply::of("200 OK", PROMETHEUS, probe.metrics()),
        _ => {
            let turn = pages.acquire().await;
            let probe = probe.clone();
            let made = tokio::task::spawn_blocking(move || probe.page(&request)).await;
            drop(turn);
            match made {
                Ok(Some(reply)) => reply,
                Ok(None) => Reply::text("404 Not Found", "not found"),
                Err(_) => Reply::text("500 Internal Server Error", "the page could not be made"),
            }
        }
    }
}

/// `max_lag=100ms` among the parameters.
fn max_lag(query: &str) -> Result<Option<Duration>, String> {
    let mut pairs = query.split('&').filter_map(|p| p.split_once('='));
    let Some((_, v)) = pairs.find(|(k, _)| *k == "max_lag") else {
        return Ok(None);
    };
    let time = base::units::duration(v);
    let bad = || format!("max_lag={v}: a time such as 100ms or 2s");
    time.map(Some).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(bool);

    impl Probe for Fixed {
        fn ready(&self, max_lag: Option<Duration>) -> Result<(), String> {
            if max_lag.is_some_and(|l| l < Duration::from_millis(50)) {
                Err("50 ms behind".into())
            } else if self.0 {
                Ok(())
            } else {
                Err("recovering".into())
            }
        }
        fn metrics(&self) -> String {
            "canon_up 1\n".into()
        }
        fn page(&self, request: &Request) -> Option<Reply> {
            let seen = request.header("x-seen")?.to_owned();
            let old = if request.old { " of old" } else { "" };
            let mut reply = Reply::text("200 OK", &format!("{} {seen}{old}", request.path));
            reply.headers.push(("X-Own", "1".into()));
            Some(reply)
        }
    }

    async fn ask(request: &str, ready: bool) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut entered = Entered {
            stream: Box::new(server),
            secured: false,
        };
        let (pages, probe) = (Semaphore::new(1), Arc::new(Fixed(ready)));
        if let Some(head) = head(&mut entered).await.unwrap() {
            let answered = answer(&mut entered, &head, None, &probe, &pages);
            answered.await.unwrap();
        }
        drop(entered);
        let mut out = String::new();
        client.read_to_string(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn probes_are_answered() {
        let ok = ask("GET /healthz HTTP/1.1\r\n\r\n", false).await;
        assert!(
            ok.starts_with("HTTP/1.1 200 OK\r\n") && ok.ends_with("ok\n"),
            "{ok}"
        );
        assert!(
            ask("GET /readyz?x=1 HTTP/1.1\r\n\r\n", true)
                .await
                .contains(" 200 ")
        );
        for (lag, status) in [("100ms", " 200 "), ("20ms", " 503 "), ("soon", " 400 ")] {
            let request = format!("GET /readyz?max_lag={lag} HTTP/1.1\r\n\r\n");
            assert!(ask(&request, true).await.contains(status), "{lag}");
        }
        let no = ask("GET /readyz HTTP/1.1\r\n\r\n", false).await;
        assert!(no.contains(" 503 ") && no.ends_with("recovering\n"));
        assert!(
            ask("GET /metrics HTTP/1.1\r\n\r\n", true)
                .await
                .ends_with("canon_up 1\n")
        );
        assert!(
            !ask("HEAD /metrics HTTP/1.1\r\n\r\n", true)
                .await
                .ends_with("canon_up 1\n")
        );
        assert!(
            ask("POST /metrics HTTP/1.1\r\n\r\n", true)
                .await
                .contains(" 405 ")
        );
        assert!(ask("GET /x HTTP/1.1\r\n\r\n", true).await.contains(" 404 "));
    }

    #[tokio::test]
    async fn a_page_of_the_program_sees_the_headers_and_adds_its_own() {
        let own = ask("GET /own?a=b HTTP/1.1\r\nX-Seen:  it \r\n\r\n", true).await;
        assert!(own.starts_with("HTTP/1.1 200 OK\r\n"), "{own}");
        assert!(own.contains("\r\nX-Own: 1\r\n") && own.ends_with("\r\n\r\n/own it\n"));
        for version in [" HTTP/1.0", ""] {
            let old = ask(&format!("GET /own{version}\r\nX-Seen: it\r\n\r\n"), true).await;
            assert!(old.ends_with("\r\n\r\n/own it of old\n"), "{old}");
        }
        let none = ask("GET /own HTTP/1.1\r\n\r\n", true).await;
        assert!(none.contains(" 404 "), "{none}");
        let head = ask("HEAD /own HTTP/1.1\r\nx-seen: it\r\n\r\n", true).await;
        assert!(head.contains("Content-Length: 8\r\n") && head.ends_with("\r\n\r\n"));
        let no = ask("PUT /own HTTP/1.1\r\n\r\n", true).await;
        assert!(no.contains(" 405 ") && no.contains("Allow: GET, HEAD\r\n"));
    }

    #[tokio::test]
    async fn silent_connections_make_room_for_a_probe() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, Arc::new(Fixed(true))));
        let mut held = Vec::new();
        for n in 0..3 * MOST {
            let mut s = TcpStream::connect(at).await.unwrap();
            // The head of a request that does not end is none.
            if n % 2 == 0 {
                s.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
            }
            held.push(s);
        }
        for _ in 0..3 {
            let mut s = TcpStream::connect(at).await.unwrap();
            s.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
            let mut bytes = Vec::new();
            s.read_to_end(&mut bytes).await.unwrap();
            assert!(bytes.ends_with(b"ok\n"));
        }
        // The oldest one was closed; not the newest.
        let mut oldest = held.swap_remove(0);
        assert!(matches!(oldest.read(&mut [0]).await, Ok(0) | Err(_)));
        let newest = held.last().unwrap();
        let error = newest.try_read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        serving.abort();
    }

    #[tokio::test]
    async fn a_head_without_an_end_is_not_read_for_ever() {
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(LONGEST + 1));
        assert_eq!(ask(&long, true).await, "");
    }
}
