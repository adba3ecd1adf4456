//! The console: one page that shows what a node and its cluster do, served beside `/metrics`. It only reads.
//!
//! ```text
//! browser ── GET /console ──▶ door (who is it) ──▶ the files below `page/`, which are in this program
//!         ── GET /console/data, every two seconds ──▶ door ──▶ data (collect), at most once in [`FRESH`] for all who ask ──▶ JSON
//! ```
//! The page loads nothing from elsewhere, and its Content-Security-Policy lets no script run but its own files. TLS begins at once where the server has
//! a certificate and the first byte of a connection is that of a handshake; plain HTTP stays at the same port for scrapers.
//!
//! `/healthz`, `/readyz` and `/metrics` are answered without a login, as before: they name no row and no statement.
//!
//! Left out on purpose: anything that changes the server; pages of other nodes, which each node serves itself; a history in the server. The page keeps
//! what it has seen since it was opened.

mod data;
mod door;
mod throttle;

use crate::entrance::Entrance;
use crate::metrics::Metrics;
use door::{Asked, Door, Verdict};
use parking_lot::Mutex;
use protocol::tls::Acceptor;
use service::http::{Entered, Entering, Probe, Reply, Request};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Data are collected anew when they are older than this.
const FRESH: Duration = Duration::from_secs(1);
/// What every page of the console says to the browser.
const HEADERS: [(&str, &str); 6] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// Data that were collected.
struct Collected {
    at: Instant,
    json: Arc<str>,
}

/// What a server serves over HTTP.
pub struct Pages {
    metrics: Arc<Metrics>,
    entrance: Entrance,
    door: Mutex<Door>,
    started: Instant,
    /// Data are not older than this.
    fresh: Duration,
    /// Without keys and totals, and with them.
    collected: [Mutex<Option<Collected>>; 2],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The files of the page: path, type, text.
const FILES: [(&str, &str, &str); 7] = [
    ("/console", HTML, include_str!("page/page.html")),
    ("/console/style.css", CSS, include_str!("page/style.css")),
    ("/console/icon.svg", SVG, include_str!("page/icon.svg")),
    ("/console/page.js", SCRIPT, include_str!("page/page.js")),
    ("/console/chart.js", SCRIPT, include_str!("page/chart.js")),
    (
        "/console/elements.js",
        SCRIPT,
        include_str!("page/elements.js"),
    ),
    ("/console/words.js", SCRIPT, include_str!("page/words.js")),
];

fn file(path: &str) -> Option<Reply> {
    let found = FILES.iter().find(|f| f.0 == path);
    found.map(|&(_, kind, text)| Reply::of("200 OK", kind, text))
}

impl Pages {
    pub fn new(metrics: Arc<Metrics>, entrance: Entrance) -> Pages {
        let mut secret = [0; 16];
        env::Env::os().random.fill(&mut secret);
        Pages {
            metrics,
            entrance,
            door: Mutex::new(Door::new(secret)),
            started: Instant::now(),
            fresh: FRESH,
            collected: Default::default(),
        }
    }

    /// Whether this request is let in.
    fn admit(&self, request: &Request) -> Verdict {
        let Some(peer) = request.peer else {
            return Verdict::Refused("it is not known where this request comes from".into());
        };
        let proxies = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
        let has_passed = proxies.iter().any(|h| request.header(h).is_some());
        let asked = Asked {
            peer,
            secured: request.secured,
            host: request.header("host"),
            // nginx passes a request on as HTTP/1.0 and says nothing of it, unless it is told otherwise.
            forwarded: request.old || has_passed,
            authorization: request.header("authorization"),
        };
        let Some((place, connections)) = self.metrics.source.get() else {
            // Without a catalog there are no roles, and nothing is shown that a probe does not tell.
            return match asked.is_local() {
                true => Verdict::In { keys: false },
                false => Verdict::Refused(
                    "a witness, and a server that starts, know no roles: ask from their machine"
                        .into(),
                ),
            };
        };
        let catalog = place.node.catalog();
        let times = (connections.shared.now(), self.started.elapsed());
        let mut door = self.door.lock();
        door.open(&asked, &self.entrance, &catalog.schema, times)
    }

    /// The data as JSON.
    fn data(&self, keys: bool) -> Arc<str> {
        let mut last = self.collected[usize::from(keys)].lock();
        if let Some(c) = last.as_ref().filter(|c| c.at.elapsed() < self.fresh) {
            return c.json.clone();
        }
        let data = data::collect(&self.metrics, keys);
        let json = serde_json::to_string(&data).unwrap_or_else(|_| "null".into());
        let json: Arc<str> = json.into();
        *last = Some(Collected {
            at: Instant::now(),
            json: json.clone(),
        });
        json
    }

    fn answer(&self, request: &Request) -> Reply {
        match self.admit(request) {
            Verdict::In { keys } if request.path == "/console/data" => {
                let json = self.data(keys).to_string();
                Reply::of("200 OK", "application/json", json)
            }
            Verdict::In { .. } => {
                let found = file(&request.path);
                found.unwrap_or_else(|| Reply::text("404 Not Found", "not found"))
            }
            Verdict::Login => {
                let mut reply =
                    Reply::text("401 Unauthorized", "a role and its password are wanted");
                let scheme = "Basic realm=\"Canon\", charset=\"UTF-8\"";
                reply.headers.push(("WWW-Authenticate", scheme.into()));
                reply
            }
            Verdict::Later(wait) => {
                let mut reply = Reply::text("429 Too Many Requests", "too many wrong passwords");
                let seconds = wait.as_secs() + 1;
                reply
                    .headers
                    .push(("Retry-After", seconds.to_string().into()));
                reply
            }
            Verdict::Refused(why) => Reply::text("403 Forbidden", &why),
        }
    }
}

impl Probe for Pages {
    fn ready(&self, max_lag: Option<Duration>) -> Result<(), String> {
        self.metrics.ready(max_lag)
    }

    fn metrics(&self) -> String {
        self.metrics.metrics()
    }

    fn page(&self, request: &Request) -> Option<Reply> {
        let own = request.path == "/console" || request.path.starts_with("/console/");
        let mut reply = match request.path.as_str() {
            "/" | "/console/" => {
                let mut reply = Reply::text("302 Found", "the console is at /console");
                reply.headers.push(("Location", "/console".into()));
                reply
            }
            _ if own => self.answer(request),
            _ => return None,
        };
        let fixed = HEADERS.map(|(name, value)| (name, Cow::Borrowed(value)));
        reply.headers.extend(fixed);
        Some(reply)
    }

    fn enter(&self, stream: TcpStream) -> Entering {
        let tls = self.entrance.tls.clone();
        Box::pin(async move { enter(stream, tls).await })
    }
}

/// A connection inside of TLS if it begins so, and the server has a certificate.
async fn enter(stream: TcpStream, tls: Option<Arc<Acceptor>>) -> std::io::Result<Entered> {
    let mut first = [0];
    if let Some(tls) = tls
        && stream.peek(&mut first).await? == 1
        && first[0] == HANDSHAKE
    {
        let stream = Box::new(tls.accept_page(stream).await?);
        return Ok(Entered {
            stream,
            secured: true,
        });
    }
    Ok(Entered {
        stream: Box::new(stream),
        secured: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Pages {
        Pages::new(Arc::default(), Entrance::default())
    }

    fn ask(pages: &Pages, path: &str, peer: &str) -> Reply {
        let request = Request {
            path: path.into(),
            headers: vec![("host".into(), "127.0.0.1:8080".into())],
            peer: Some(peer.parse().expect("an address")),
            ..Request::default()
        };
        pages.page(&request).expect("a page of the console")
    }

    #[test]
    fn a_request_that_a_proxy_has_passed_on_is_not_of_this_machine() {
        let pages = pages();
        let peer = "127.0.0.1:9".parse().expect("an address");
        let host = ("host".to_owned(), "127.0.0.1:8080".to_owned());
        let asked = |old, more: &[&str]| {
            let more = more.iter().map(|h| ((*h).to_owned(), "1".to_owned()));
            let request = Request {
                path: "/console/data".into(),
                headers: [host.clone()].into_iter().chain(more).collect(),
                peer: Some(peer),
                old,
                ..Request::default()
            };
            pages.page(&request).expect("a page of the console").status
        };
        assert_eq!(asked(false, &[]), "200 OK");
        assert_eq!(asked(false, &["accept"]), "200 OK");
        assert_eq!(asked(false, &["x-forwarded-for"]), "403 Forbidden");
        assert_eq!(asked(true, &[]), "403 Forbidden", "as nginx passes it on");
    }

    #[test]
    fn every_page_has_its_type_and_the_policy() {
        let pages = pages();
        let plain = "text/plain; charset=utf-8";
        let more = [
            ("/console/data", "200 OK", "application/json"),
            ("/console/other", "404 Not Found", plain),
            ("/", "302 Found", plain),
        ];
        let files = FILES.map(|(path, kind, _)| (path, "200 OK", kind));
        for (path, status, kind) in files.into_iter().chain(more) {
            let reply = ask(&pages, path, "127.0.0.1:9");
            assert_eq!((reply.status, reply.kind), (status, kind), "{path}");
            for (name, value) in HEADERS {
                let has = |h: &(&str, Cow<'static, str>)| h.0 == name && h.1 == value;
                assert!(reply.headers.iter().any(has), "{path} {name}");
            }
        }
        let outside = Request {
            path: "/consoles".into(),
            ..Request::default()
        };
        assert!(pages.page(&outside).is_none());
    }

    #[test]
    fn the_page_loads_only_what_the_policy_lets_it() {
        let html = FILES[0].2;
        for forbidden in [
            "<style",
            "style=\"",
            "javascript:",
            "http://",
            "https://",
            " onclick",
            " onload",
        ] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        for (i, _) in html.match_indices("<script") {
            assert!(
                html[i..].starts_with("<script type=\"module\" src=\"console/page.js\"></script>")
            );
        }
        // Whatever comes from the server goes into the document as text.
        let scripts = FILES.iter().filter(|f| f.1 == SCRIPT);
        let script: String = scripts.map(|f| f.2).collect();
        for markup in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
        ] {
            assert!(!script.contains(markup), "{markup}");
        }
    }

    #[test]
    fn other_machines_see_nothing_before_there_are_roles() {
        let pages = pages();
        for path in ["/console", "/console/data", "/console/page.js"] {
            assert_eq!(ask(&pages, path, "192.0.2.1:9").status, "403 Forbidden");
        }
    }

    #[test]
    fn data_are_collected_once_for_all_that_ask() {
        let asked_twice = |fresh: Duration| {
            let pages = Pages { fresh, ..pages() };
            let collected = |p: &Pages| p.collected[0].lock().as_ref().map(|c| c.at);
            assert_eq!(ask(&pages, "/console/data", "127.0.0.1:9").status, "200 OK");
            let first = collected(&pages);
            assert_eq!(ask(&pages, "/console/data", "127.0.0.1:9").status, "200 OK");
            (first, collected(&pages))
        };
        let (first, second) = asked_twice(Duration::from_secs(3600));
        assert_eq!(first, second);
        let (first, second) = asked_twice(Duration::ZERO);
        assert_ne!(first, second);
    }
}
