//! Members inside of TLS: what they say to each other, certificates that do not count, and new certificates.
//!
//! ```text
//! other members ──▶ tap ──▶ member      a tap passes all on, and notes which connections begin with a handshake of TLS
//! ```

use super::certificates::{Authority, Pair, text};
use super::witness::Proxy;
use super::*;
use protocol::startup::SSL_REQUEST;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HERE: &[&str] = &["127.0.0.1"];
/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;

/// Other members reach a member here.
struct Tap {
    at: String,
    inside: Arc<AtomicUsize>,
    plain: Arc<AtomicUsize>,
}

impl Tap {
    async fn before(port: u16) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        let (inside, plain) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let counts = (inside.clone(), plain.clone());
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let counts = counts.clone();
                tokio::spawn(async move {
                    // A member that is down.
                    let Ok(to) = TcpStream::connect(("127.0.0.1", port)).await else {
                        return;
                    };
                    _ = pass(from, to, &counts.0, &counts.1).await;
                });
            }
        });
        Tap { at, inside, plain }
    }

    /// All connections so far, of which there are some, were inside of TLS.
    fn saw_only_tls(&self) {
        assert_eq!(self.plain.load(Ordering::SeqCst), 0, "{}", self.at);
        assert!(self.inside.load(Ordering::SeqCst) > 0, "{}", self.at);
    }
}

/// Passes a connection on until it ends, and counts how it begins.
async fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    inside: &AtomicUsize,
    plain: &AtomicUsize,
) -> std::io::Result<()> {
    let mut first = [0; 8];
    from.read_exact(&mut first).await?;
    to.write_all(&first).await?;
    let asks = first[4..] == SSL_REQUEST.to_be_bytes();
    if asks {
        let answer = to.read_u8().await?;
        from.write_u8(answer).await?;
        let next = from.read_u8().await?;
        to.write_u8(next).await?;
        let secured = answer == b'S' && next == HANDSHAKE;
        let which = if secured { inside } else { plain };
        which.fetch_add(1, Ordering::SeqCst);
    } else {
        plain.fetch_add(1, Ordering::SeqCst);
    }
    tokio::io::copy_bidirectional(&mut from, &mut to).await?;
    Ok(())
}

/// Starts a member behind a tap, as this command. `pair`: its certificate; none: it has no TLS. `ca`: the authority that the member trusts.
async fn launch(
    command: &str,
    name: &str,
    pair: Option<&Pair>,
    ca: &Path,
    join: Option<&Tap>,
) -> (Node, Tap) {
    let mut server = Server::canon(&[]);
    let tap = Tap::before(server.port).await;
    let http = free_port();
    let pages = format!("127.0.0.1:{http}");
    let mut env = vec![
        ("CANON_NODE_NAME", name),
        ("CANON_HTTP", &pages),
        ("CANON_CLUSTER_ADDRESS", &tap.at),
        ("CANON_TLS_CLUSTER_CA", text(ca)),
        // The log goes over the connections, too.
        ("CANON_SHARED_MEMORY", "false"),
    ];
    env.extend(pair.iter().flat_map(|p| p.variables()));
    env.extend(join.map(|j| ("CANON_CLUSTER_JOIN", j.at.as_str())));
    server.set_env(&env);
    server.launch_as(command, &[]);
    (Node { server, http }, tap)
}

/// Two servers with certificates that this authority has signed.
async fn two(authority: &Authority) -> ([Node; 2], [Tap; 2]) {
    let ca = authority.root();
    let pair = |name: &str| authority.sign(name, name, HERE);
    let (mut a, to_a) = launch("start", "a", Some(&pair("a")), &ca, None).await;
    a.server.ready().await;
    let (mut b, to_b) = launch("start", "b", Some(&pair("b")), &ca, Some(&to_a)).await;
    b.server.ready().await;
    ([a, b], [to_a, to_b])
}

async fn log_says(node: &Node, words: &str) {
    let deadline = Instant::now() + HANG;
    let path = node.server.scratch().join("log");
    while !std::fs::read_to_string(&path).is_ok_and(|log| log.contains(words)) {
        let log = node.server.log_tail();
        assert!(Instant::now() < deadline, "{words} is not in\n{log}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_and_a_witness_speak_inside_of_tls_only_also_over_a_fail_over() {
    if skip() {
        return;
    }
    let authority = Authority::new("authority");
    let (mut nodes, taps) = two(&authority).await;
    let pair = authority.sign("w", "w", HERE);
    let ca = authority.root();
    let (mut w, to_w) = launch("witness", "w", Some(&pair), &ca, Some(&taps[1])).await;
    for n in [&nodes[0], &nodes[1], &w] {
        can_fail_over(n).await;
    }
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(30, &nodes).await;
    nodes[0].server.kill();
    writers.more(30, &nodes).await;
    assert_eq!(leader(&nodes), Some(1));
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    w.server.kill();
    writers.more(30, &nodes).await;
    w.server.launch_as("witness", &[]);
    for n in [&nodes[0], &nodes[1], &w] {
        can_fail_over(n).await;
    }
    hand_over(&nodes[0]).await;
    writers.more(30, &nodes).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
    for tap in taps.iter().chain([&to_w]) {
        tap.saw_only_tls();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_in_a_proxy_votes_inside_of_tls() {
    if skip() {
        return;
    }
    let authority = Authority::new("authority");
    let (mut nodes, taps) = two(&authority).await;
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("witness");
    let secret = common::cluster_secret(scratch.path());
    let (own, ca) = (authority.sign("proxy", "proxy", HERE), authority.root());
    let (door, votes) = (free_port(), free_port());
    let (listen, at_votes) = (format!("127.0.0.1:{door}"), format!("127.0.0.1:{votes}"));
    let all = format!("{},{}", at(&nodes[0]), at(&nodes[1]));
    let _proxy = Proxy::start(&[
        "--nodes",
        &all,
        "--listen",
        &listen,
        "--cluster-secret-file",
        text(&secret),
        "--tls-certificate",
        text(&own.certificate),
        "--tls-key",
        text(&own.key),
        "--tls-cluster-ca",
        text(&ca),
        "--witness",
        text(&directory),
        "--witness-listen",
        &at_votes,
        "--join",
        &taps[1].at,
    ]);
    for n in &nodes {
        can_fail_over(n).await;
    }
    prepare(&nodes).await;
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(door);
    config.user("canon").dbname("canon");
    let writers = Writers::start_at(vec![config], 2, 1);
    writers.more(30, &nodes).await;
    nodes[0].server.kill();
    writers.more(30, &nodes).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    can_fail_over(&nodes[0]).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
    for tap in &taps {
        tap.saw_only_tls();
    }
}

/// A server that joins has a certificate for the members, and the members have one for that server. Each of both ends refuses what does not count.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_does_not_count_keeps_a_server_and_a_witness_out() {
    if skip() {
        return;
    }
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let ca = authority.root();
    let pair = authority.sign("a", "a", HERE);
    let (mut a, to_a) = launch("start", "a", Some(&pair), &ca, None).await;
    a.server.ready().await;
    let wrong = [
        (Some(stranger.sign("w", "w", HERE)), "UnknownIssuer"),
        (Some(authority.sign_until("old", "w", HERE, 2001)), "xpired"),
        (
            Some(authority.sign("elsewhere", "w", &["db.example"])),
            "not valid for name",
        ),
        (None, "it has no TLS"),
    ];
    for (pair, why) in &wrong {
        let (w, _) = launch("witness", "w", pair.as_ref(), &ca, Some(&to_a)).await;
        log_says(&w, "\"a\" does not reach").await;
        log_says(&w, why).await;
    }
    // It trusts nothing that the members show.
    let own = authority.sign("c", "c", HERE);
    let (c, _) = launch("start", "c", Some(&own), &stranger.root(), Some(&to_a)).await;
    log_says(&c, "UnknownIssuer").await;
    let (_, metrics) = get(a.http, "/metrics");
    for name in ["w", "c"] {
        let member = format!("canon_member_votes{{member=\"{name}\"}}");
        assert!(!metrics.contains(&member), "{name} is a member");
    }

    // A server has its copy, and is no member until its certificate counts.
    let other = stranger.sign("b", "b", HERE);
    let (mut b, _) = launch("start", "b", Some(&other), &ca, Some(&to_a)).await;
    b.server.ready().await;
    log_says(&b, "\"a\" does not reach").await;
    log_says(&b, "UnknownIssuer").await;
    let (_, metrics) = get(a.http, "/metrics");
    assert!(!metrics.contains("member=\"b\""), "b is a member");
    replace(&authority.sign("b", "b", HERE), &other);
    signal(&b, "-HUP");
    log_says(&b, "this node is a member of the cluster").await;
    says(&a, "b is a member", |m| m.contains("member=\"b\"")).await;
}

/// Puts this certificate and its key in the place of other ones.
fn replace(new: &Pair, old: &Pair) {
    let files = [(&new.certificate, &old.certificate), (&new.key, &old.key)];
    for (new, old) in files {
        put(&std::fs::read(new).expect("readable"), old);
    }
}

/// Replaces the content of a file that only its owner may read, at once.
fn put(content: &[u8], path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let next = path.with_extension("next");
    std::fs::write(&next, content).expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&next, mode).expect("only the owner's");
    std::fs::rename(&next, path).expect("renamed");
}

/// Another authority takes the place of the first one: trusted beside it, then signing, then alone. No member starts again for that, and no signal is sent.
#[tokio::test(flavor = "multi_thread")]
async fn members_take_new_certificates_and_authorities_without_a_start() {
    if skip() {
        return;
    }
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let roots = [&old, &new].map(|a| std::fs::read(a.root()).expect("readable"));
    let trusted: PathBuf = old.directory().join("trusted.crt");
    put(&roots[0], &trusted);
    let pairs = ["a", "b", "w"].map(|name| old.sign(name, name, HERE));
    let (mut a, to_a) = launch("start", "a", Some(&pairs[0]), &trusted, None).await;
    a.server.ready().await;
    let (mut b, to_b) = launch("start", "b", Some(&pairs[1]), &trusted, Some(&to_a)).await;
    b.server.ready().await;
    let (w, to_w) = launch("witness", "w", Some(&pairs[2]), &trusted, Some(&to_a)).await;
    for n in [&a, &b, &w] {
        can_fail_over(n).await;
    }
    put(&roots.concat(), &trusted);
    for (name, pair) in ["a", "b", "w"].into_iter().zip(&pairs) {
        replace(&new.sign(name, name, HERE), pair);
    }
    for n in [&a, &b, &w] {
        log_says(n, "certificates are read again").await;
    }
    put(&roots[1], &trusted);
    let mut nodes = [a, b];
    prepare(&nodes).await;
    // Each connection from and to this one is made anew, and only the new authority counts.
    nodes[1].server.kill();
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    for n in [&nodes[0], &nodes[1], &w] {
        can_fail_over(n).await;
    }
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    nodes[0].server.kill();
    writers.more(20, &nodes).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
    for tap in [&to_a, &to_b, &to_w] {
        tap.saw_only_tls();
    }
}
