//! Against a server that answers what a test says: what is made again, and how long it may take.

use super::*;
use std::io::Write;
use std::net::TcpListener;

const BAD: &str = "<Error><Code>SlowDown</Code><Message>Please wait</Message></Error>";

fn answer(status: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")
}

/// The requests that came: method, path and body.
type Came = Arc<Mutex<Vec<String>>>;

/// A server that gives each request the next of these answers, and the last one from then on; an empty one is never given.
fn server(answers: Vec<String>) -> (Bucket, Came) {
    let (endpoint, came) = listen(answers);
    let bucket = bucket(|name| match name {
        "AWS_ENDPOINT_URL" => Some(endpoint.clone()),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("hush".into()),
        _ => None,
    });
    (bucket, came)
}

/// The bucket of these variables.
fn bucket(variable: impl Fn(&str) -> Option<String>) -> Bucket {
    let place = Place::parse("bucket/p").expect("a place");
    let access = Access::of(&place, variable);
    let limits = Limits {
        connect: Duration::from_millis(200),
        request: Duration::from_millis(300),
        pause: Duration::from_millis(1),
        part: 8,
    };
    let clock = env::Env::os().clock;
    Bucket::new(place, access.expect("all is said"), limits, clock)
}

/// Where the server listens.
fn listen(answers: Vec<String>) -> (String, Came) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let came = Came::default();
    let noted = came.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let line = head.lines().next().unwrap_or_default();
            let line = line.trim_end_matches(" HTTP/1.1").to_owned();
            let len = head.lines().find_map(|l| {
                l.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            let mut body = vec![0; len.unwrap_or(0)];
            stream.read_exact(&mut body).expect("the body comes");
            let key = head
                .split("Credential=")
                .nth(1)
                .and_then(|c| c.split('/').next());
            let body = String::from_utf8_lossy(&body);
            let n = {
                let mut all = noted.lock();
                all.push(format!("{} {line} {body}", key.unwrap_or_default()));
                all.len() - 1
            };
            match answers[n.min(answers.len() - 1)].as_str() {
                "" => held.push(stream),
                text => stream.write_all(text.as_bytes()).expect("it reads"),
            }
        }
    });
    (endpoint, came)
}

#[test]
fn what_may_pass_is_asked_again() {
    let (bucket, came) = server(vec![
        answer("503 Slow Down", BAD),
        String::new(),
        answer("200 OK", ""),
    ]);
    bucket.put("a", b"").unwrap();
    assert_eq!(came.lock().len(), 3);
}

#[test]
fn attempts_and_their_time_have_an_end() {
    let (bucket, came) = server(vec![answer("500 Oops", BAD)]);
    let error = bucket.list("").unwrap_err();
    assert_eq!(came.lock().len(), ATTEMPTS as usize);
    let said = error.to_string();
    for part in [
        "s3://bucket/p",
        "500",
        "SlowDown",
        "Please wait",
        "4 attempts",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("hush"), "{said}");
    // A server that never answers.
    let (bucket, came) = server(vec![String::new()]);
    let error = bucket.len("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(came.lock().len(), ATTEMPTS as usize);
}

#[test]
fn what_is_final_is_asked_once() {
    let say = |code: &str| format!("<Error><Code>{code}</Code></Error>");
    for (status, code, kind) in [
        (
            "403 Forbidden",
            "SignatureDoesNotMatch",
            ErrorKind::PermissionDenied,
        ),
        ("404 Not Found", "NoSuchBucket", ErrorKind::NotADirectory),
        ("404 Not Found", "NoSuchKey", ErrorKind::NotFound),
        (
            "301 Moved Permanently",
            "PermanentRedirect",
            ErrorKind::Other,
        ),
    ] {
        let (bucket, came) = server(vec![answer(status, &say(code))]);
        let error = bucket.read("a", &mut [0; 4], 0).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(code), "{error}");
        assert_eq!(came.lock().len(), 1);
    }
}

#[test]
fn bytes_that_break_off_are_asked_for_again() {
    let short = "HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nConnection: close\r\n\r\nab";
    let (bucket, came) = server(vec![
        short.to_owned(),
        answer("206 Partial Content", "abcd"),
        answer("206 Partial Content", "efghi"),
        answer("416 Range Not Satisfiable", ""),
    ]);
    let mut buf = [0; 4];
    assert_eq!(bucket.read("a", &mut buf, 0).unwrap(), 4);
    assert_eq!(&buf, b"abcd");
    assert_eq!(came.lock().len(), 2);
    // It goes on, so all that there is comes at once, and the end is not asked for twice.
    assert_eq!(bucket.read("a", &mut buf, 4).unwrap(), 4);
    assert_eq!(&buf, b"efgh");
    assert_eq!(bucket.read("a", &mut buf, 8).unwrap(), 1);
    assert_eq!(&buf[..1], b"i");
    assert_eq!(came.lock().len(), 4);
}

#[test]
fn a_whole_object_where_a_range_was_asked_for_is_refused() {
    let (bucket, _) = server(vec![answer("200 OK", "abcd")]);
    let error = bucket.read("a", &mut [0; 4], 0).unwrap_err();
    assert!(
        error.to_string().contains("a range was asked for"),
        "{error}"
    );
}

fn part(tag: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nETag: \"{tag}\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

const BEGUN: &str =
    "<InitiateMultipartUploadResult><UploadId>a/b</UploadId></InitiateMultipartUploadResult>";
const ENDED: &str = "<CompleteMultipartUploadResult><Key>k</Key></CompleteMultipartUploadResult>";

/// Pieces of three bytes at most.
fn pieces(bytes: &[u8]) -> impl FnMut(u64, u64) -> io::Result<Vec<u8>> {
    |at, n| Ok(bytes[at as usize..(at + n.min(3)) as usize].to_vec())
}

#[test]
fn a_large_object_goes_in_parts() {
    let (bucket, came) = server(vec![
        answer("200 OK", BEGUN),
        part("one"),
        // A part that fails is sent again, and no other.
        answer("503 Slow Down", BAD),
        part("two"),
        part("three"),
        // What fails while the parts are put together.
        answer("200 OK", "<Error><Code>InternalError</Code></Error>"),
        answer("200 OK", ENDED),
    ]);
    let bytes = b"0123456789abcdefgh";
    bucket.put_pieces("a", 18, &mut pieces(bytes)).unwrap();
    let whole = "<CompleteMultipartUpload>\
        <Part><PartNumber>1</PartNumber><ETag>\"one\"</ETag></Part>\
        <Part><PartNumber>2</PartNumber><ETag>\"two\"</ETag></Part>\
        <Part><PartNumber>3</PartNumber><ETag>\"three\"</ETag></Part></CompleteMultipartUpload>";
    let end = format!("hush POST /bucket/p/a?uploadId=a%2Fb {whole}");
    assert_eq!(
        *came.lock(),
        [
            "hush POST /bucket/p/a?uploads= ",
            "hush PUT /bucket/p/a?partNumber=1&uploadId=a%2Fb 01234567",
            "hush PUT /bucket/p/a?partNumber=2&uploadId=a%2Fb 89abcdef",
            "hush PUT /bucket/p/a?partNumber=2&uploadId=a%2Fb 89abcdef",
            "hush PUT /bucket/p/a?partNumber=3&uploadId=a%2Fb gh",
            &end,
            &end,
        ]
    );
    // One that is as long as a part goes in one request.
    let (bucket, came) = server(vec![answer("200 OK", "")]);
    bucket.put_pieces("a", 8, &mut pieces(bytes)).unwrap();
    assert_eq!(*came.lock(), ["hush PUT /bucket/p/a 01234567"]);
}

#[test]
fn parts_of_an_upload_that_fails_are_given_up() {
    let denied = "<Error><Code>AccessDenied</Code></Error>";
    let (bucket, came) = server(vec![
        answer("200 OK", BEGUN),
        part("one"),
        answer("403 Forbidden", denied),
        answer("204 No Content", ""),
    ]);
    let error = bucket.put("a", b"0123456789").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let last = came.lock().last().cloned();
    assert_eq!(
        last.as_deref(),
        Some("hush DELETE /bucket/p/a?uploadId=a%2Fb ")
    );
    // Nothing was begun: nothing is given up.
    let (bucket, came) = server(vec![answer("403 Forbidden", denied)]);
    assert!(bucket.put("a", b"0123456789").is_err());
    assert_eq!(came.lock().len(), 1);
    // What is read breaks off.
    let (bucket, came) = server(vec![answer("200 OK", BEGUN), answer("204 No Content", "")]);
    let mut broken = |_, _| Err(io::Error::other("torn"));
    let error = bucket.put_pieces("a", 20, &mut broken).unwrap_err();
    assert!(error.to_string().contains("torn"), "{error}");
    assert_eq!(came.lock().len(), 2);
}

#[test]
fn an_object_whose_last_answer_was_lost_is_there() {
    let gone = "<Error><Code>NoSuchUpload</Code></Error>";
    let head =
        |len| format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
    for (len, fine) in [(10, true), (9, false)] {
        let (bucket, _) = server(vec![
            answer("200 OK", BEGUN),
            part("one"),
            part("two"),
            String::new(),
            answer("404 Not Found", gone),
            head(len),
            answer("204 No Content", ""),
        ]);
        assert_eq!(bucket.put("a", b"0123456789").is_ok(), fine, "{len}");
    }
}

#[test]
fn keys_that_are_refused_are_read_again() {
    let ended = "<Error><Code>ExpiredToken</Code></Error>";
    let (endpoint, came) = listen(vec![
        answer("200 OK", ""),
        answer("400 Bad Request", ended),
        answer("200 OK", ""),
        answer("403 Forbidden", ""),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys");
    let write = |key: &str| {
        let text = format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = hush\n");
        std::fs::write(&file, text).unwrap();
    };
    write("first");
    let bucket = bucket(|name| match name {
        "AWS_ENDPOINT_URL" => Some(endpoint.clone()),
        "AWS_SHARED_CREDENTIALS_FILE" => file.to_str().map(str::to_owned),
        _ => None,
    });
    bucket.put("a", b"").unwrap();
    write("second");
    bucket.put("a", b"").unwrap();
    let error = bucket.put("a", b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let keys: Vec<String> = came
        .lock()
        .iter()
        .map(|c| c.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    // Refused with no newer ones: once.
    assert_eq!(keys, ["first", "first", "second", "second"]);
}
