//! The console: what each request gets, which logins are let in, what the data say of a server at work, and the page in a browser.

#[path = "console/browser.rs"]
mod browser;
#[path = "tls/certificates.rs"]
mod certificates;
#[path = "console/cluster.rs"]
mod cluster;
mod common;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use browser::Browser;
use certificates::Authority;
use common::{PATIENCE, Server, free_port, on_postgres, sqlstate};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::Client;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A name that would run if it were taken for markup.
const HOSTILE: &str = "</script><img src=x onerror=\"window.hit=1\">";

/// A server with a console, and its port.
async fn server(more: &[(&str, &str)]) -> (Server, u16) {
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let mut variables = vec![("CANON_HTTP", at.as_str())];
    variables.extend(more);
    (Server::start_with(&variables).await, port)
}

/// An answer: status, head in lower case, body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
        Answer {
            status: status.unwrap_or(0),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// Asks over plain HTTP. `more`: lines of the head.
fn ask(host: &str, port: u16, method: &str, path: &str, more: &str) -> Answer {
    let mut s = TcpStream::connect((host, port)).expect("it listens");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n");
    s.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    s.read_to_string(&mut text).expect("an answer");
    Answer::of(&text)
}

fn get(port: u16, path: &str, more: &str) -> Answer {
    ask("127.0.0.1", port, "GET", path, more)
}

/// A line of the head that shows a role and its password.
fn login(role_and_password: &str) -> String {
    let coded = BASE64_STANDARD.encode(role_and_password);
    format!("Authorization: Basic {coded}\r\n")
}

/// Data that fit.
async fn data(port: u16, fits: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let json = get(port, "/console/data", "").json();
        if fits(&json) {
            return json;
        }
        assert!(Instant::now() < deadline, "{json:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.expect(sql);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_get_pages_types_and_the_policy() {
    if on_postgres() {
        return;
    }
    let (_server, port) = server(&[]).await;
    for (path, kind) in [
        ("/console", "text/html; charset=utf-8"),
        ("/console/style.css", "text/css; charset=utf-8"),
        ("/console/page.js", "text/javascript; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
        ("/console/data", "application/json"),
    ] {
        let page = get(port, path, "");
        assert_eq!(page.status, 200, "{path}");
        for wanted in [
            format!("\r\ncontent-type: {kind}\r\n"),
            "\r\ncontent-security-policy: default-src 'none'; script-src 'self';".into(),
            "\r\ncache-control: no-store".into(),
            "\r\nx-content-type-options: nosniff".into(),
        ] {
            assert!(
                page.head.contains(&wanted),
                "{path} {wanted}: {}",
                page.head
            );
        }
        assert!(!page.head.contains("unsafe"), "{}", page.head);
        let head = ask("127.0.0.1", port, "HEAD", path, "");
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let no = ask("127.0.0.1", port, method, path, "");
            assert!(
                no.status == 405 && no.head.contains("\r\nallow: get, head"),
                "{method} {path}"
            );
        }
    }
    for (path, status) in [
        ("/console/none", 404),
        ("/console/../metrics", 404),
        ("/none", 404),
        ("/", 302),
    ] {
        assert_eq!(get(port, path, "").status, status, "{path}");
    }
    // A page of the web that has its name resolved to this machine shows that name.
    let rebound = "GET /console/data HTTP/1.1\r\nHost: rebound.example\r\n\r\n";
    let mut s = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    s.write_all(rebound.as_bytes()).expect("sent");
    let mut text = String::new();
    s.read_to_string(&mut text).expect("an answer");
    assert_eq!(Answer::of(&text).status, 401);
    // A proxy on this machine speaks for others.
    assert_eq!(
        get(port, "/console", "X-Forwarded-For: 192.0.2.1\r\n").status,
        401
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_asked_for_where_psql_asks_for_one() {
    if on_postgres() {
        return;
    }
    let (server, port) = server(&[]).await;
    assert_eq!(get(port, "/console", "").status, 200);
    let client = server.connect().await;
    run(
        &client,
        "CREATE ROLE watch LOGIN PASSWORD 'seen'; GRANT pg_monitor TO watch;
         CREATE ROLE plain LOGIN PASSWORD 'seen';
         CREATE TABLE t (id int PRIMARY KEY); ALTER USER canon PASSWORD 'secret'",
    )
    .await;
    let none = get(port, "/console/data", "");
    assert_eq!(none.status, 401);
    assert!(
        none.head.contains("\r\nwww-authenticate: basic realm="),
        "{}",
        none.head
    );
    // Probes ask for nothing.
    assert_eq!(get(port, "/metrics", "").status, 200);
    let all = get(port, "/console/data", &login("canon:secret"));
    assert_eq!((all.status, &all.json()["keys"]), (200, &Value::Bool(true)));
    let some = get(port, "/console/data", &login("watch:seen"));
    assert_eq!(
        (some.status, &some.json()["keys"]),
        (200, &Value::Bool(false))
    );
    assert_eq!(get(port, "/console", &login("plain:seen")).status, 403);
    for wrong in ["canon:guess", "canon:", "nobody:secret", "canon"] {
        assert_eq!(
            get(port, "/console/data", &login(wrong)).status,
            401,
            "{wrong}"
        );
    }
    let deadline = Instant::now() + PATIENCE;
    while get(port, "/console", &login("canon:guess")).status != 429 {
        assert!(Instant::now() < deadline, "it is not limited");
    }
    // What was right before goes on meanwhile.
    assert_eq!(get(port, "/console", &login("canon:secret")).status, 200);
    run(&client, "ALTER USER canon PASSWORD 'other'").await;
    assert_ne!(get(port, "/console", &login("canon:secret")).status, 200);
}

/// This machine's address on a network, if it has one.
fn network_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// Asks inside of TLS.
async fn ask_inside(host: &str, port: u16, root: &std::path::Path, more: &str) -> Answer {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(root).expect("a certificate");
    roots.add(certificate).expect("an authority");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // As a browser does.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    let socket = tokio::net::TcpStream::connect((host, port)).await;
    let connector = TlsConnector::from(Arc::new(config));
    let mut s = connector
        .connect(name, socket.expect("it listens"))
        .await
        .expect("TLS");
    let request = format!("GET /console/data HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    s.write_all(request.as_bytes()).await.expect("sent");
    let mut bytes = vec![];
    // An end without close_notify is an end.
    _ = s.read_to_end(&mut bytes).await;
    Answer::of(&String::from_utf8_lossy(&bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn other_machines_come_inside_of_tls_and_with_a_login() {
    if on_postgres() {
        return;
    }
    let Some(network) = network_address() else {
        return common::lacks("an address of this machine on a network");
    };
    let host = network.to_string();
    let authority = Authority::new("authority");
    let pair = authority.sign("server", "server", &["127.0.0.1", &host]);
    let at = format!("0.0.0.0:{}", free_port());
    let port: u16 = at
        .rsplit(':')
        .next()
        .and_then(|p| p.parse().ok())
        .expect("a port");
    let mut variables = pair.variables();
    variables.push(("CANON_HTTP", &at));
    let server = Server::start_with(&variables).await;
    run(
        &server.connect().await,
        "ALTER USER canon PASSWORD 'secret'",
    )
    .await;
    let right = login("canon:secret");
    // The password would be readable on its way, so it is not even looked at.
    for more in ["", right.as_str()] {
        let plain = ask(&host, port, "GET", "/console/data", more);
        assert_eq!(plain.status, 403, "{}", plain.body);
    }
    assert_eq!(ask(&host, port, "GET", "/metrics", "").status, 200);
    let root = authority.root();
    assert_eq!(ask_inside(&host, port, &root, "").await.status, 401);
    assert_eq!(
        ask_inside(&host, port, &root, &login("canon:guess"))
            .await
            .status,
        401
    );
    let data = ask_inside(&host, port, &root, &right).await;
    assert_eq!(
        (data.status, &data.json()["node"]["role"]),
        (200, &Value::from("primary"))
    );
    // From this machine, the same port takes both.
    assert_eq!(get(port, "/console", &right).status, 200);
    assert_eq!(
        ask_inside("127.0.0.1", port, &root, &right).await.status,
        200
    );
}

/// Two transactions fight for row 1 of a table: one waits for the other, and one is told to try again.
async fn fight(server: &Server, table: &str) {
    let (a, b) = (server.connect().await, Arc::new(server.connect().await));
    run(
        &a,
        &format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, n int); INSERT INTO {table} VALUES (1, 0)"
        ),
    )
    .await;
    let change = format!("UPDATE {table} SET n = n + 1 WHERE id = 1");
    run(
        &a,
        &format!("BEGIN ISOLATION LEVEL READ COMMITTED; {change}"),
    )
    .await;
    let (waits, statement) = (b.clone(), change.clone());
    let waiting = tokio::spawn(async move {
        run(
            &waits,
            &format!("BEGIN ISOLATION LEVEL READ COMMITTED; {statement}; COMMIT"),
        )
        .await;
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let deadline = Instant::now() + PATIENCE;
    while a
        .query_one(waits, &[])
        .await
        .expect("it runs")
        .get::<_, i64>(0)
        == 0
    {
        assert!(Instant::now() < deadline, "it does not wait");
    }
    run(&a, "COMMIT").await;
    waiting.await.expect("it ends");
    run(
        &a,
        &format!("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT n FROM {table} WHERE id = 1"),
    )
    .await;
    run(&b, &change).await;
    let change = a.batch_execute(&change).await;
    let lost = match change {
        Ok(()) => a.batch_execute("COMMIT").await.expect_err("it lost"),
        Err(e) => e,
    };
    assert_eq!(sqlstate(&lost), "40001");
    _ = a.batch_execute("ROLLBACK").await;
}

/// A session of a hostile name that runs a hostile statement until it is dropped.
async fn hostile(server: &Server) -> tokio::task::JoinHandle<()> {
    let mut config = server.config();
    config.application_name(HOSTILE);
    let client = common::connect_to(&config).await.expect("it connects");
    tokio::spawn(async move {
        let sql = format!("SELECT '{HOSTILE}', pg_sleep(600)");
        _ = client.batch_execute(&sql).await;
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_say_what_is_fought_for_and_what_runs() {
    if on_postgres() {
        return;
    }
    let (server, port) = server(&[]).await;
    fight(&server, "stock").await;
    let _runs = hostile(&server).await;
    let seen = |d: &Value| {
        let all = d["sessions"].as_array().cloned().unwrap_or_default();
        let row = &d["rows"][0];
        all.iter().any(|s| s["application"] == HOSTILE)
            && row["waits"].as_u64() >= Some(1)
            && row["lost"].as_u64() >= Some(1)
    };
    let d = data(port, seen).await;
    assert_eq!(
        (&d["rows"][0]["table"], &d["rows"][0]["key"]),
        (&"stock".into(), &"(id)=(1)".into())
    );
    let race = &d["races"][0];
    assert_eq!(
        (&race["table"], &race["key"]),
        (&"stock".into(), &"(id)=(1)".into())
    );
    let winner = race["winner"].as_str().expect("a winner");
    assert!(winner.starts_with("committed at "), "{winner}");
    let aborts: u64 = d["aborts"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|a| a[1].as_u64())
        .sum();
    assert!(aborts >= 1, "{d:#}");
    let sessions = d["sessions"].as_array().expect("a list");
    let own = sessions
        .iter()
        .find(|s| s["application"] == HOSTILE)
        .expect("there");
    assert_eq!(own["query"], format!("SELECT '{HOSTILE}', pg_sleep(600)"));
    assert_eq!(
        (&own["state"], &own["role"]),
        (&"active".into(), &"canon".into())
    );
    assert!(own["statement"].as_i64().is_some_and(|t| t >= 0));
    assert_eq!(
        (&d["node"]["role"], &d["obstacle"]),
        (&"primary".into(), &Value::Null)
    );
    assert!(d["counters"]["committed"].as_u64().is_some_and(|n| n > 0));
    // The views say the same, to the owner of the table and to superusers.
    let client = server.connect().await;
    let rows = "SELECT count(*) FROM canon_stat_hot_rows h JOIN canon_stat_conflicts c USING (table_name, key)
        WHERE key = '(id)=(1)' AND lock_waits > 0 AND aborts > 0 AND winner LIKE 'committed at %'";
    let count = client.query_one(rows, &[]).await.expect("it runs");
    assert!(count.get::<_, i64>(0) > 0);
    run(
        &client,
        "CREATE ROLE stranger; GRANT SELECT ON stock TO stranger; SET ROLE stranger",
    )
    .await;
    let count = client.query_one(rows, &[]).await.expect("it runs");
    assert_eq!(count.get::<_, i64>(0), 0);
    run(&client, "RESET ROLE").await;
    // Without keys for a role that only watches.
    run(
        &client,
        "CREATE ROLE watch LOGIN PASSWORD 'seen'; GRANT pg_monitor TO watch",
    )
    .await;
    let watched = get(port, "/console/data", &login("watch:seen")).json();
    assert_eq!(
        (&watched["rows"][0]["table"], &watched["rows"][0]["key"]),
        (&"stock".into(), &Value::Null)
    );
    assert_eq!(watched["races"][0]["key"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_draws_it_in_a_browser() {
    if on_postgres() {
        return;
    }
    let (server, port) = server(&[]).await;
    fight(&server, "\"<img src=x onerror='window.hit=2'>\"").await;
    let _runs = hostile(&server).await;
    let url = format!("http://127.0.0.1:{port}/");
    let seen = tokio::task::spawn_blocking(move || look(&url));
    seen.await.expect("it is drawn");
}

/// Whether the page shows what it is to show, and takes no text for markup.
fn look(url: &str) {
    let mut b = Browser::start(1280, 900);
    b.open(url);
    b.until("location.pathname === '/console'");
    b.until("document.querySelector('#state')?.textContent === 'serving'");
    b.until("document.querySelector('#role').textContent === 'primary'");
    b.until("document.querySelector('#statements').textContent.includes('pg_sleep(600)')");
    // Lines need two samples, and a legend shows the rate of the newest.
    b.until("document.querySelectorAll('path.line').length >= 4");
    b.until(
        "[...document.querySelectorAll('.legend b')].some((e) => /\\d.*\\/s$/.test(e.textContent))",
    );
    b.until("document.querySelector('#rows').textContent.includes('(id)=(1)')");
    b.until("/committed at \\d+\\.\\d+/.test(document.querySelector('#races').textContent)");
    b.until("document.querySelector('#nodes').textContent.includes('this node')");
    // Texts of strangers stay texts.
    let application = b.value(
        "[...document.querySelectorAll('#statements td')].map((e) => e.textContent).find((t) => t.includes('onerror') && !t.includes('pg_sleep'))",
    );
    assert_eq!(application, HOSTILE);
    assert_eq!(b.value("window.hit === undefined"), true);
    assert_eq!(
        b.value("document.images.length + document.scripts.length"),
        2
    );
    // By keyboard: the first key goes to the way around the header, and Enter opens a statement.
    b.press("Tab", 9, "");
    assert_eq!(b.value("document.activeElement.className"), "skip");
    b.value("document.querySelector('#statements button').focus()");
    b.press("Enter", 13, "\r");
    b.until("document.activeElement.getAttribute('aria-expanded') === 'true'");
    b.value("document.querySelector('svg.chart').focus()");
    b.press("ArrowLeft", 37, "");
    b.until("document.querySelector('svg.chart .cross') !== null");
    // Both schemes, and a phone.
    let background = "getComputedStyle(document.documentElement).backgroundColor";
    b.prefers("light");
    let light = b.value(background);
    b.prefers("dark");
    assert_ne!(b.value(background), light);
    b.resize(375, 700);
    b.until("document.documentElement.scrollWidth <= 375");
    assert!(b.complaints.is_empty(), "{:?}", b.complaints);
}
