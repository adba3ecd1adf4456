//! TLS between nodes and through a proxy, and rules of which role may come from where.

use super::*;
use proxy::{Options, Running};
use std::time::Duration;

/// Waits until the question has this answer.
async fn until(client: &Client, sql: &str, wanted: &str) {
    let limit = Instant::now() + PATIENCE;
    while one(client, sql).await.as_deref() != Some(wanted) {
        assert!(Instant::now() < limit, "{sql} is not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Every connection of a replica goes inside of TLS, and only to a node whose certificate counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_follows_inside_of_tls() {
    if on_postgres() {
        return;
    }
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let pair = authority.sign("primary", "primary", &["127.0.0.1"]);
    let primary = Server::start_with(&pair.variables()).await;
    let p = primary.connect().await;
    p.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
        .await
        .expect("a table");
    let of = format!("127.0.0.1:{}", primary.port);
    let root = authority.root();
    let mut replica = Server::canon(&[
        ("CANON_REPLICA_OF", &of),
        ("CANON_NODE_NAME", "replica"),
        ("CANON_TLS_CLUSTER_CA", text(&root)),
    ]);
    replica.launch();
    replica.ready().await;
    let r = replica.connect().await;
    until(&r, "SELECT v FROM t", "1").await;
    // What runs at the primary for a session here is inside of TLS there.
    r.batch_execute("BEGIN; UPDATE t SET v = 2")
        .await
        .expect("forwarded");
    let all = "SELECT bool_and(ssl) FROM pg_stat_ssl WHERE pid <> pg_backend_pid()";
    until(&p, all, "t").await;
    r.batch_execute("COMMIT").await.expect("committed");
    assert_eq!(one(&p, "SELECT v FROM t").await.as_deref(), Some("2"));
    until(&r, "SELECT v FROM t", "2").await;
    let root = stranger.root();
    let mut other = Server::canon(&[
        ("CANON_REPLICA_OF", &of),
        ("CANON_NODE_NAME", "other"),
        ("CANON_TLS_CLUSTER_CA", text(&root)),
    ]);
    other.launch();
    let limit = Instant::now() + PATIENCE;
    while !other.log_tail().contains("UnknownIssuer") {
        assert!(Instant::now() < limit, "{}", other.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client's proof goes through the proxy to a node, both ways inside of TLS.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_has_tls_on_both_sides() {
    if on_postgres() {
        return;
    }
    let authority = Authority::new("authority");
    let pair = authority.sign("node", "node", &["127.0.0.1"]);
    let node = Server::start_with(&pair.variables()).await;
    let n = node.connect().await;
    n.batch_execute("CREATE ROLE alice LOGIN PASSWORD 'secret'")
        .await
        .expect("a role");
    let own = authority.sign("proxy", "proxy", &["127.0.0.1"]);
    let options = Options {
        nodes: vec![format!("127.0.0.1:{}", node.port)],
        listen: "127.0.0.1:0".into(),
        listen_primary: None,
        listen_standby: None,
        http: None,
        user: "canon".into(),
        max_connections: 10,
        max_lag: PATIENCE,
        check_interval: Duration::from_millis(50),
        patience: PATIENCE,
        shutdown_timeout: Duration::from_secs(5),
        allow_passwordless_network: false,
        allow_plain_network: false,
        tls_certificate: Some(own.certificate.clone()),
        tls_key: Some(own.key.clone()),
        tls_cluster_ca: Some(authority.root()),
        log_level: "warn".into(),
    };
    let proxy = Running::start(options).await.expect("a proxy");
    let mut config = tokio_postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(proxy.listening[0].port())
        .user("alice")
        .password("secret")
        .dbname("canon")
        .connect_timeout(PATIENCE);
    let alice = connect(&config, trusting(&authority.root(), None)).await;
    let alice = alice.expect("alice, inside of TLS");
    assert_eq!(one(&alice, PROTECTED).await.as_deref(), Some("t"));
    let long = "x".repeat(1_000_000);
    let back = alice.query_one("SELECT length($1::text)", &[&long]).await;
    assert_eq!(back.expect("it runs").get::<_, i32>(0), 1_000_000);
    // From this machine a plain client gets in, too; the way to the node is inside of TLS all the same.
    let plain = common::connect_to(&config).await.expect("plain");
    assert_eq!(one(&plain, PROTECTED).await.as_deref(), Some("t"));
    config.password("guess");
    let e = connect(&config, trusting(&authority.root(), None)).await;
    assert_eq!(sqlstate(&e.map(drop).expect_err("refused")), "28P01");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_say_which_role_may_come_from_where() {
    if on_postgres() {
        return;
    }
    let (authority, clients) = (Authority::new("authority"), Authority::new("clients"));
    let pair = authority.sign("server", "server", &["127.0.0.1"]);
    let (root, ca) = (authority.root(), clients.root());
    let mut server = Server::start_with(&[]).await;
    server
        .connect()
        .await
        .batch_execute(
            "CREATE ROLE staff; CREATE ROLE sue LOGIN IN ROLE staff; CREATE ROLE eve LOGIN PASSWORD 'secret'; \
             CREATE ROLE bob LOGIN PASSWORD 'secret'; CREATE ROLE ann LOGIN",
        )
        .await
        .expect("roles");
    server.kill();
    let file = authority.directory().join("canon.toml");
    let rule = |from: &str, role: &str, more: &str| {
        format!("[[access]]\nfrom = \"{from}\"\nrole = \"{role}\"\n{more}\n")
    };
    let rules = [
        rule("127.0.0.0/8", "canon", "method = \"trust\""),
        rule("127.0.0.0/8", "+staff", "tls = true\nmethod = \"cert\""),
        rule("any", "eve", "method = \"reject\""),
        rule("any", "all", "database = \"canon\"\nmethod = \"scram\""),
    ];
    std::fs::write(&file, rules.concat()).expect("written");
    let mut variables = pair.variables();
    variables.push(("CANON_TLS_CLIENT_CA", text(&ca)));
    variables.push(("CANON_CONFIG", text(&file)));
    server.set_env(&variables);
    server.launch();
    server.ready().await;
    let role = |name: &str| {
        let mut config = server.config();
        config.user(name).password("secret");
        config
    };
    let code = |r: Result<Client, tokio_postgres::Error>| sqlstate(&r.map(drop).expect_err("out"));
    let own = clients.sign("sue", "sue", &[]);
    let other = clients.sign("eve", "eve", &[]);
    let sue = connect(&role("sue"), trusting(&root, Some(&own))).await;
    let sue = sue.expect("by her certificate");
    assert_eq!(
        one(&sue, "SELECT session_user").await.as_deref(),
        Some("sue")
    );
    let r = connect(&role("sue"), trusting(&root, Some(&other))).await;
    assert_eq!(code(r), "28000");
    let r = connect(&role("sue"), trusting(&root, None)).await;
    assert_eq!(code(r), "28000");
    // Plain, the rule does not fit; the last one wants a password, and she has none.
    assert_eq!(code(common::connect_to(&role("sue")).await), "28P01");
    assert_eq!(code(common::connect_to(&role("eve")).await), "28000");
    common::connect_to(&role("bob")).await.expect("bob");
    // Without rules she would get in from here.
    assert_eq!(code(common::connect_to(&role("ann")).await), "28P01");
    let mut elsewhere = role("bob");
    elsewhere.dbname("other");
    assert_eq!(code(common::connect_to(&elsewhere).await), "28000");
    server.kill();
    for (wrong, why) in [
        ("method = \"ldap\"", "scram, cert, trust or reject"),
        (
            "method = \"scram\"\nfrom = \"10.0.0.0/33\"",
            "access rule 1: from",
        ),
        ("method = \"cert\"", "it needs tls.client_ca"),
        ("method = \"scram\"\nusers = \"a\"", "unknown field"),
    ] {
        std::fs::write(&file, format!("[[access]]\n{wrong}\n")).expect("written");
        refuses(&[("CANON_CONFIG", text(&file))], why).await;
    }
}
