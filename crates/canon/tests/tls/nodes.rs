//! TLS between nodes and through a proxy, and rules of which role may come from where.

use super::*;
use protocol::certificate::end_point;
use protocol::startup::{RELAYED, SESSION_USER};
use proxy::{Options, Running};
use replica::proof::Secret;
use std::os::unix::fs::PermissionsExt;
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

/// A client's proof goes through the proxy to a node, both ways inside of TLS, and is bound to the certificate that the client sees.
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
    let options = |secret: Option<&Path>| Options {
        nodes: vec![format!("127.0.0.1:{}", node.port)],
        listen: "127.0.0.1:0".into(),
        listen_primary: None,
        listen_standby: None,
        http: None,
        user: "canon".into(),
        cluster_secret_file: secret.map(Path::to_owned),
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
    let secret = common::cluster_secret(node.scratch());
    let proxy = Running::start(options(Some(&secret))).await;
    let proxy = proxy.expect("a proxy");
    let alice_at = |port: u16| {
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(port)
            .user("alice")
            .password("secret")
            .dbname("canon")
            .connect_timeout(PATIENCE);
        config
    };
    let mut config = alice_at(proxy.listening[0].port());
    let alice = connect(&config, trusting(&authority.root(), None)).await;
    let alice = alice.expect("alice, inside of TLS");
    assert_eq!(one(&alice, PROTECTED).await.as_deref(), Some("t"));
    let long = "x".repeat(1_000_000);
    let back = alice.query_one("SELECT length($1::text)", &[&long]).await;
    assert_eq!(back.expect("it runs").get::<_, i32>(0), 1_000_000);
    // From this machine a plain client gets in, too; the way to the node is inside of TLS all the same.
    let plain = common::connect_to(&config).await.expect("plain");
    assert_eq!(one(&plain, PROTECTED).await.as_deref(), Some("t"));
    config.channel_binding(ChannelBinding::Require);
    let bound = connect(&config, trusting(&authority.root(), None)).await;
    bound.expect("bound to the proxy's certificate");
    config.password("guess");
    let e = connect(&config, trusting(&authority.root(), None)).await;
    assert_eq!(sqlstate(&e.map(drop).expect_err("refused")), "28P01");
    proxy.stop().await;

    // Without the secret the node does not know what the proof is bound to.
    let proxy = Running::start(options(None)).await.expect("a proxy");
    let config = alice_at(proxy.listening[0].port());
    let e = connect(&config, trusting(&authority.root(), None)).await;
    let e = e.map(drop).expect_err("refused");
    let said = e.as_db_error().expect("in words").hint();
    assert!(
        said.is_some_and(|h| h.contains("--cluster-secret-file")),
        "{e:?}"
    );
    proxy.stop().await;

    // A key that others can read is no key.
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&own.key, open).expect("ours");
    let Err(e) = Running::start(options(Some(&secret))).await.map(drop) else {
        panic!("others can read it");
    };
    assert!(e.fields().message.contains("others may read it"), "{e}");
}

/// What only says that it is a proxy takes no protection off: the better mechanism stays in the offer.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_has_the_secret_passes_a_login_on() {
    if on_postgres() {
        return;
    }
    let authority = Authority::new("authority");
    let pair = authority.sign("server", "server", &["127.0.0.1"]);
    let server = Server::start_with(&pair.variables()).await;
    let c = server.connect().await;
    let role = "CREATE ROLE alice LOGIN PASSWORD 'secret'; CREATE ROLE ann LOGIN";
    c.batch_execute(role).await.expect("roles");
    let at = |user: &str| {
        let port = server.port;
        let text = format!(
            "host=127.0.0.1 port={port} sslmode=require user={user} password=secret dbname=canon"
        );
        Conninfo::parse(&text).expect("an address")
    };
    let relayed = async |user: &str, said: &str| {
        let link = Link::connect(&at(user), &[(RELAYED, said)]).await;
        link.map(drop).map_err(|e| e.code().to_string())
    };
    let der = CertificateDer::from_pem_file(&pair.certificate).expect("a certificate");
    let here = end_point(&der).expect("it has a binding");
    let ours = Secret::parse(common::SECRET).expect("a secret");
    let theirs = Secret::new([7; 32]);
    // The client's end is a plain connection: no binding is asked of it.
    assert_eq!(
        relayed("alice", &ours.relay(Some(&here), None)).await,
        Ok(())
    );
    let elsewhere = ours.relay(Some(b"another node"), None);
    for said in ["on", "", &theirs.relay(Some(&here), None), &elsewhere] {
        for user in ["alice", "ann"] {
            assert_eq!(relayed(user, said).await, Err("28000".into()), "{said}");
        }
    }
    // The client's end is bound to another certificate than this client sees.
    let bound = ours.relay(Some(&here), Some(b"another"));
    assert_eq!(relayed("alice", &bound).await, Err("28000".into()));
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
    // A proxy speaks for a role only where the rules let that in, and never shows the certificate of a client.
    let speak = async |name: &str| {
        let at = format!("host=127.0.0.1 port={} user=canon", server.port);
        let at = Conninfo::parse(&at).expect("an address");
        let link = Link::connect(&at, &[(SESSION_USER, name)]).await;
        link.map(drop).map_err(|e| e.code().to_string())
    };
    assert_eq!(speak("bob").await, Ok(()));
    for name in ["eve", "sue"] {
        assert_eq!(speak(name).await, Err("28000".into()), "{name}");
    }
    let at = format!(
        "host=127.0.0.1 port={} user=sue dbname=canon sslmode=require sslcert={} sslkey={}",
        server.port,
        text(&own.certificate),
        text(&own.key)
    );
    let at = Conninfo::parse(&at).expect("an address");
    Link::connect(&at, &[]).await.expect("by her certificate");
    let der = CertificateDer::from_pem_file(&pair.certificate).expect("a certificate");
    let here = end_point(&der).expect("it has a binding");
    let said = Secret::parse(common::SECRET).expect("a secret");
    let said = said.relay(Some(&here), None);
    let e = Link::connect(&at, &[(RELAYED, &said)]).await.map(drop);
    let e = e.expect_err("the certificate is a proxy's");
    assert!(e.fields().message.contains("through a proxy"), "{e}");
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
