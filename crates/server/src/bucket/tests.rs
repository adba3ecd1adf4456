//! Against a server that answers what a test says: what is made again, and how long it may take.

use super::*;
use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

const BAD: &str = "<Error><Code>SlowDown</Code><Message>Please wait</Message></Error>";

fn answer(status: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")
}

/// A server that gives each request the next of these answers, and the last one from then on; an empty one is never given. How many came.
fn server(answers: Vec<String>) -> (Bucket, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let n = count.fetch_add(1, Ordering::SeqCst);
            match answers[n.min(answers.len() - 1)].as_str() {
                "" => held.push(stream),
                text => stream.write_all(text.as_bytes()).expect("it reads"),
            }
        }
    });
    let place = Place::parse("bucket/p").expect("a place");
    let access = Access::of(&place, |name| match name {
        "AWS_ENDPOINT_URL" => Some(endpoint.clone()),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("hush".into()),
        _ => None,
    });
    let limits = Limits {
        connect: Duration::from_millis(200),
        request: Duration::from_millis(300),
        pause: Duration::from_millis(1),
    };
    let clock = env::Env::os().clock;
    let bucket = Bucket::new(place, access.expect("all is said"), limits, clock);
    (bucket, came)
}

#[test]
fn what_may_pass_is_asked_again() {
    let (bucket, came) = server(vec![
        answer("503 Slow Down", BAD),
        String::new(),
        answer("200 OK", ""),
    ]);
    bucket.put("a", b"").unwrap();
    assert_eq!(came.load(Ordering::SeqCst), 3);
}

#[test]
fn attempts_and_their_time_have_an_end() {
    let (bucket, came) = server(vec![answer("500 Oops", BAD)]);
    let error = bucket.list("").unwrap_err();
    assert_eq!(came.load(Ordering::SeqCst), ATTEMPTS as usize);
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
    assert_eq!(came.load(Ordering::SeqCst), ATTEMPTS as usize);
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
        assert_eq!(came.load(Ordering::SeqCst), 1);
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
    assert_eq!(came.load(Ordering::SeqCst), 2);
    // It goes on, so all that there is comes at once, and the end is not asked for twice.
    assert_eq!(bucket.read("a", &mut buf, 4).unwrap(), 4);
    assert_eq!(&buf, b"efgh");
    assert_eq!(bucket.read("a", &mut buf, 8).unwrap(), 1);
    assert_eq!(&buf[..1], b"i");
    assert_eq!(came.load(Ordering::SeqCst), 4);
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
