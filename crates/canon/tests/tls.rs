//! TLS between clients, proxies and nodes: what is protected, what a client sees of it, and what is refused.
//!
//! Clients are tokio-postgres with rustls, Canon's own `Link`, and raw sockets that misbehave. `clients_tls.rs` has libpq.

#[path = "tls/certificates.rs"]
mod certificates;
mod common;
#[path = "tls/nodes.rs"]
mod nodes;

use certificates::{Authority, Pair, text};
use common::{PATIENCE, Server, on_postgres, sqlstate};
use protocol::startup::SSL_REQUEST;
use protocol::{Conninfo, Link, startup};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A client that trusts this authority, and shows a certificate if it has one.
fn trusting(root: &Path, own: Option<&Pair>) -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(root).expect("a certificate");
    roots.add(certificate).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_file(&own.certificate).expect("own")];
            let key = PrivateKeyDer::from_pem_file(&own.key).expect("its key");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    MakeRustlsConnect::new(config)
}

async fn connect(
    config: &tokio_postgres::Config,
    tls: MakeRustlsConnect,
) -> Result<Client, tokio_postgres::Error> {
    let mut config = config.clone();
    config.ssl_mode(SslMode::Require);
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(async move {
        _ = connection.await;
    });
    Ok(client)
}

/// The first column of the first row.
async fn one(client: &Client, sql: &str) -> Option<String> {
    let all = client.simple_query(sql).await.expect("it runs");
    let row = all.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(r) => Some(r.get(0).map(str::to_owned)),
        _ => None,
    });
    row.expect("a row")
}

const PROTECTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[tokio::test(flavor = "multi_thread")]
async fn a_client_inside_of_tls_is_served_and_seen() {
    if on_postgres() {
        return;
    }
    let authority = Authority::new("authority");
    let pair = authority.sign("server", "server", &["127.0.0.1"]);
    let server = Server::start_with(&pair.variables()).await;
    let plain = server.connect().await;
    assert_eq!(one(&plain, PROTECTED).await.as_deref(), Some("f"));
    assert_eq!(one(&plain, "SHOW ssl").await.as_deref(), Some("on"));
    let file = one(&plain, "SHOW ssl_cert_file").await;
    assert_eq!(file.as_deref(), Some(text(&pair.certificate)));
    plain
        .batch_execute("CREATE ROLE alice LOGIN PASSWORD 'secret'")
        .await
        .expect("a role");
    // The proof of the password is bound to the certificate.
    let mut config = server.config();
    config
        .user("alice")
        .password("secret")
        .channel_binding(ChannelBinding::Require);
    let alice = connect(&config, trusting(&authority.root(), None)).await;
    let alice = alice.expect("alice");
    assert_eq!(one(&alice, PROTECTED).await.as_deref(), Some("t"));
    let how = "SELECT version || ' ' || bits FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let how = one(&alice, how).await.expect("how");
    assert!(how.starts_with("TLSv1.3 "), "{how}");
    config.password("guess");
    let e = connect(&config, trusting(&authority.root(), None)).await;
    assert_eq!(sqlstate(&e.map(drop).expect_err("refused")), "28P01");
    // Far more than a record of TLS, both ways.
    let long = "x".repeat(3_000_000);
    let back = alice.query_one("SELECT $1::text || 'y'", &[&long]).await;
    let back: String = back.expect("it runs").get(0);
    assert!(back.len() == long.len() + 1 && back.ends_with("xy"));
    // A request to cancel goes inside of TLS, too.
    let cancel = alice.cancel_token();
    let sleeps = tokio::spawn(async move { alice.simple_query("SELECT pg_sleep(600)").await });
    let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND state = 'active' AND usename = 'alice'";
    let until = Instant::now() + PATIENCE;
    while one(&plain, running).await.as_deref() != Some("1") {
        assert!(Instant::now() < until, "it does not run");
    }
    let canceled = cancel.cancel_query(trusting(&authority.root(), None)).await;
    canceled.expect("sent");
    let e = sleeps.await.expect("it ends").expect_err("canceled");
    assert_eq!(sqlstate(&e), "57014");
}

/// Does not start, and says why.
async fn refuses(variables: &[(&str, &str)], why: &str) {
    let mut server = Server::canon(variables);
    server.launch();
    let status = server.exited(PATIENCE).await.expect("it ends");
    assert!(!status.success(), "{status}");
    let said = server.log_tail();
    assert!(said.contains(why), "{why} is not in:\n{said}");
    assert!(!server.data_dir().exists(), "a directory was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_files_end_the_start() {
    if on_postgres() {
        return;
    }
    let authority = Authority::new("authority");
    let (a, b) = (
        authority.sign("a", "a", &["127.0.0.1"]),
        authority.sign("b", "b", &["127.0.0.1"]),
    );
    let certificate = ("CANON_TLS_CERTIFICATE", text(&a.certificate));
    let key = ("CANON_TLS_KEY", text(&a.key));
    refuses(&[certificate], "it needs tls.key").await;
    refuses(&[key], "it needs tls.certificate").await;
    let none = ("CANON_TLS_CERTIFICATE", "/nowhere/server.crt");
    refuses(&[none, key], "/nowhere/server.crt").await;
    let other = ("CANON_TLS_KEY", text(&b.key));
    refuses(&[certificate, other], "not the key of").await;
    let swapped = ("CANON_TLS_CERTIFICATE", text(&a.key));
    refuses(&[swapped, key], "no certificate in it").await;
    let no_authority = ("CANON_TLS_CLIENT_CA", text(&a.key));
    refuses(&[certificate, key, no_authority], "no certificate in it").await;
    let no_authority = ("CANON_TLS_CLUSTER_CA", "/nowhere/ca.crt");
    refuses(&[no_authority], "/nowhere/ca.crt").await;
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&b.key, open).expect("open");
    let certificate = ("CANON_TLS_CERTIFICATE", text(&b.certificate));
    refuses(&[certificate, other], "others may read it").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_read_again() {
    if on_postgres() {
        return;
    }
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let pair = old.sign("server", "server", &["127.0.0.1"]);
    let server = Server::start_with(&pair.variables()).await;
    let before = connect(&server.config(), trusting(&old.root(), None)).await;
    let before = before.expect("by the old authority");
    let other = new.sign("server", "server", &["127.0.0.1"]);
    let hang_up = || {
        let pid = server.pid().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-HUP", &pid])
            .status();
        assert!(sent.expect("kill runs").success());
    };
    let by = async |authority: &Authority| {
        let root = authority.root();
        let c = connect(&server.config(), trusting(&root, None)).await;
        c.is_ok()
    };
    // A certificate without its key: what was there stays, and is told.
    std::fs::copy(&other.certificate, &pair.certificate).expect("copied");
    hang_up();
    let until = Instant::now() + PATIENCE;
    while !server.log_tail().contains("could not be read") {
        assert!(Instant::now() < until, "{}", server.log_tail());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(by(&old).await && !by(&new).await);
    std::fs::copy(&other.key, &pair.key).expect("copied");
    hang_up();
    while !by(&new).await {
        assert!(Instant::now() < until, "{}", server.log_tail());
    }
    assert!(!by(&old).await);
    // A connection that is there stays.
    assert_eq!(one(&before, PROTECTED).await.as_deref(), Some("t"));
}

/// What Canon's own client makes of a server.
async fn link(server: &Server, more: &str) -> Result<Link, base::Error> {
    let text = format!("host=127.0.0.1 port={} {more}", server.port);
    let server = Conninfo::parse(&text).expect("an address");
    Link::connect(&server, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_has_to_count() {
    if on_postgres() {
        return;
    }
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let root = format!("sslrootcert={}", text(&authority.root()));
    let other = format!("sslrootcert={}", text(&stranger.root()));
    let refused = async |server: &Server, more: &str, why: &str| {
        let e = link(server, more).await.map(drop).expect_err(more);
        let said = e.fields().message.clone();
        assert!(said.contains(why), "{more}: {said}");
    };
    let good = authority.sign("good", "server", &["127.0.0.1"]);
    let server = Server::start_with(&good.variables()).await;
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let more = format!("sslmode={mode} {root}");
        let mut link = link(&server, &more).await.expect(mode);
        let rows = link.query(PROTECTED).await.expect("it runs");
        assert_eq!(rows[0][0].as_deref(), Some("t"), "{mode}");
    }
    link(&server, "sslmode=require").await.expect("any");
    for mode in ["require", "verify-ca", "verify-full"] {
        refused(&server, &format!("sslmode={mode} {other}"), "UnknownIssuer").await;
    }
    // For another host.
    let elsewhere = authority.sign("elsewhere", "server", &["db.example"]);
    let server = Server::start_with(&elsewhere.variables()).await;
    let more = format!("sslmode=verify-ca {root}");
    link(&server, &more).await.expect("any name");
    let more = format!("sslmode=verify-full {root}");
    refused(&server, &more, "not valid for name").await;
    let old = authority.sign_until("old", "server", &["127.0.0.1"], 2001);
    let server = Server::start_with(&old.variables()).await;
    for mode in ["verify-ca", "verify-full"] {
        refused(&server, &format!("sslmode={mode} {root}"), "xpired").await;
    }
    let plain = Server::start().await;
    refused(&plain, "sslmode=require", "it has no TLS").await;
    link(&plain, "sslmode=prefer").await.expect("plain");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_certificate_is_looked_at() {
    if on_postgres() {
        return;
    }
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let clients = Authority::new("clients");
    let pair = authority.sign("server", "server", &["127.0.0.1"]);
    let (root, ca) = (authority.root(), clients.root());
    let mut variables = pair.variables();
    variables.push(("CANON_TLS_CLIENT_CA", text(&ca)));
    let server = Server::start_with(&variables).await;
    let config = server.config();
    let known = clients.sign("alice", "alice", &[]);
    let c = connect(&config, trusting(&root, Some(&known))).await;
    let c = c.expect("with a certificate");
    let who = "SELECT client_dn || ' ' || issuer_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND client_serial > 0";
    let who = one(&c, who).await.expect("who");
    assert!(
        who.contains("/CN=alice") && who.contains("/CN=clients"),
        "{who}"
    );
    let c = connect(&config, trusting(&root, None)).await;
    c.expect("without one");
    let unknown = stranger.sign("alice", "alice", &[]);
    let expired = clients.sign_until("old", "alice", &[], 2001);
    for wrong in [&unknown, &expired] {
        let c = connect(&config, trusting(&root, Some(wrong))).await;
        assert!(c.is_err(), "{:?} counts", wrong.certificate);
    }
    let said = server.log_tail();
    assert!(said.contains("TLS refused"), "{said}");
}

fn ssl_request() -> Vec<u8> {
    let mut m = 8u32.to_be_bytes().to_vec();
    m.extend_from_slice(&SSL_REQUEST.to_be_bytes());
    m
}

/// What the server says to these bytes until it closes the connection.
fn answer(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut s = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    s.set_read_timeout(Some(PATIENCE)).expect("a limit");
    s.write_all(bytes).expect("sent");
    let mut all = Vec::new();
    match s.read_to_end(&mut all) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("neither an answer nor an end: {e}"),
    }
    all
}

/// Bytes that came before the handshake are not taken for such that came inside of TLS, and what is no handshake ends the connection.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_plain_is_taken_for_protected() {
    if on_postgres() {
        return;
    }
    let authority = Authority::new("authority");
    let pair = authority.sign("server", "server", &["127.0.0.1"]);
    let server = Server::start_with(&pair.variables()).await;
    let client = server.connect().await;
    let start = startup::message(0, [("user", "canon"), ("database", "canon")]);
    let port = server.port;
    tokio::task::block_in_place(|| {
        let said = answer(port, &[ssl_request(), start.clone()].concat());
        let text = String::from_utf8_lossy(&said).into_owned();
        assert!(
            text.contains("received unencrypted data after SSL request"),
            "{text}"
        );
        assert!(!said.starts_with(b"S"), "{text}");
        let mut s = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        s.set_read_timeout(Some(PATIENCE)).expect("a limit");
        s.write_all(&ssl_request()).expect("sent");
        let mut yes = [0; 1];
        s.read_exact(&mut yes).expect("an answer");
        assert_eq!(yes, *b"S");
        // Plain words where a handshake is due.
        s.write_all(&start).expect("sent");
        let mut rest = Vec::new();
        _ = s.read_to_end(&mut rest);
        assert!(!rest.contains(&b'R'), "{rest:?}");
    });
    assert_eq!(one(&client, PROTECTED).await.as_deref(), Some("f"));
}

/// An address of this machine by which it is not its own loopback; none: it has none.
fn network_address() -> Option<IpAddr> {
    let s = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    s.connect("192.0.2.1:9").ok()?;
    let at = s.local_addr().ok()?.ip();
    (!at.is_loopback() && !at.is_unspecified()).then_some(at)
}

#[tokio::test(flavor = "multi_thread")]
async fn from_other_machines_tls_is_needed() {
    if on_postgres() {
        return;
    }
    let Some(network) = network_address() else {
        return common::lacks("an address of this machine on a network");
    };
    let host = network.to_string();
    let authority = Authority::new("authority");
    let pair = authority.sign("server", "server", &["127.0.0.1", &host]);
    let mut server = Server::canon(&pair.variables());
    server.launch();
    server.ready().await;
    let set = "ALTER USER canon PASSWORD 'secret'";
    server
        .connect()
        .await
        .batch_execute(set)
        .await
        .expect("set");
    server.kill();
    server.host = "0.0.0.0".into();
    for allow in [false, true] {
        let mut variables = pair.variables();
        if allow {
            variables.push(("CANON_ALLOW_PLAIN_NETWORK", "true"));
        }
        server.set_env(&variables);
        server.launch();
        let mut config = server.config();
        config.password("secret");
        let until = Instant::now() + PATIENCE;
        while common::connect_to(&config).await.is_err() {
            assert!(
                server.alive() && Instant::now() < until,
                "{}",
                server.log_tail()
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let mut far = tokio_postgres::Config::new();
        far.host(&host)
            .port(server.port)
            .user("canon")
            .dbname("canon")
            .password("secret");
        let inside = connect(&far, trusting(&authority.root(), None)).await;
        inside.expect("inside of TLS");
        match (common::connect_to(&far).await, allow) {
            (Ok(_), true) => {}
            (Err(e), false) => assert_eq!(sqlstate(&e), "28000", "{e:?}"),
            (r, _) => panic!("{allow}: {:?}", r.map(drop)),
        }
        server.kill();
    }
}
