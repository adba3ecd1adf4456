//! A site beside members that choose their primary themselves.

use super::*;

/// The site is no member, and knows one primary. Its commits wait while another one leads, until it is told which.
#[tokio::test(flavor = "multi_thread")]
async fn a_site_waits_out_a_fail_over_until_it_is_told_of_the_next_primary() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let of = at(&nodes[0]);
    let site = [("CANON_REPLICA_OF", of.as_str()), ("CANON_SITE", "true")];
    let mut d = node("d", None, &site).await;
    follows(&d).await;
    let here = Writers::start_at(vec![d.server.config()], 2, 1);
    here.more(30, &nodes).await;
    nodes[0].server.kill();
    let configs = nodes[1..].iter().map(|n| n.server.config()).collect();
    let elsewhere = Writers::start_at(configs, 2, 1_000_000);
    elsewhere.more(20, &nodes).await;
    let told = here.count();
    elsewhere.more(20, &nodes).await;
    assert_eq!(
        here.count(),
        told,
        "the new primary has certified a transaction of the site"
    );

    let now = primary(&nodes[1..]).await + 1;
    d.server.kill();
    let of = at(&nodes[now]);
    let http = format!("127.0.0.1:{}", d.http);
    d.server.set_env(&[
        ("CANON_NODE_NAME", "d"),
        ("CANON_HTTP", &http),
        ("CANON_REPLICA_OF", &of),
        ("CANON_SITE", "true"),
    ]);
    d.server.launch();
    d.server.ready().await;
    follows(&d).await;
    here.more(30, &nodes).await;
    let (here, elsewhere) = (here.end().await, elsewhere.end().await);
    // What was acknowledged elsewhere last is shown here soon.
    let at = nodes[now].server.connect().await;
    let at = one(&at, "SELECT pg_current_wal_lsn()").await;
    let c = d.server.connect().await;
    assert_eq!(one(&c, &format!("WAIT FOR LSN '{at}'")).await, "success");
    for n in [&nodes[now], &d] {
        has_all(n, &here).await;
        has_all(n, &elsewhere).await;
    }
}

/// The site is no member, and joins at one: it finds the primary by that one's word, and the next primary by the word of any other. After a
/// hand-over its sessions go on; after a fail-over it may have more than the new primary, and starts again.
#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_joins_follows_fail_overs_by_itself() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let join = Some(&nodes[2].server);
    let mut d = node("d", join, &[("CANON_SITE", "true")]).await;
    follows(&d).await;
    let none = |m: &str| !m.contains("canon_member_votes{member=\"d\"}");
    says(&nodes[0], "a site is no member", none).await;
    let here = Writers::start_at(vec![d.server.config()], 2, 1);
    here.more(30, &nodes).await;
    nodes[0].server.kill();
    here.more(30, &nodes).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    can_fail_over(&nodes[0]).await;

    follows(&d).await;
    let c = d.server.connect().await;
    for heir in [0, 2] {
        hand_over(&nodes[heir]).await;
        here.more(30, &nodes).await;
        can_fail_over(&nodes[1]).await;
    }
    let written = c.batch_execute("INSERT INTO kept VALUES (-1)").await;
    written.expect("the session goes on");

    // The server at which it has joined leads, and is lost.
    nodes[2].server.kill();
    here.more(30, &nodes).await;

    // It is started while the server is down at which it has joined.
    d.server.kill();
    d.server.launch();
    d.server.ready().await;
    follows(&d).await;
    here.more(30, &nodes[..2]).await;
    let (done, said) = canon(&["promote", "--server", &at(&d)]);
    assert!(!done && said.contains("is no member"), "{said}");
    let mut acknowledged = here.end().await;
    acknowledged.insert(-1);
    let now = primary(&nodes[..2]).await;
    for n in [&nodes[now], &d] {
        has_all(n, &acknowledged).await;
    }
    nodes[2].server.launch();
    nodes[2].server.ready().await;
    has_all(&nodes[2], &acknowledged).await;
}

/// No replica has to have a commit: then only the lease says that what is certified stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_its_lease_certifies_nothing() {
    if skip() {
        return;
    }
    let founder = [("CANON_SYNCHRONOUS_REPLICAS", "0")];
    let a = node("a", None, &founder).await;
    let b = node("b", Some(&a.server), &[]).await;
    let c = node("c", Some(&b.server), &[]).await;
    let nodes = [a, b, c];
    for name in ["a", "b", "c"] {
        let votes = format!("canon_member_votes{{member=\"{name}\"}} 1");
        says(&nodes[0], "all vote", |m| m.contains(&votes)).await;
    }
    prepare(&nodes).await;
    let of = at(&nodes[0]);
    let site = [("CANON_REPLICA_OF", of.as_str()), ("CANON_SITE", "true")];
    let d = node("d", None, &site).await;
    follows(&d).await;
    let client = d.server.connect().await;
    let first = client.batch_execute("INSERT INTO kept VALUES (1)").await;
    first.expect("the primary holds its lease");
    for n in &nodes[1..] {
        signal(n, "-STOP");
    }
    says(&nodes[0], "its lease is over", |m| {
        m.contains("canon_lease_seconds 0\n")
    })
    .await;
    let limit = "SET statement_timeout = '1s'";
    client.batch_execute(limit).await.expect("a setting");
    let doubt = client.batch_execute("INSERT INTO kept VALUES (2)").await;
    let doubt = doubt.expect_err("nothing says that it stays");
    assert_eq!(common::sqlstate(&doubt), "40003", "{doubt}");
    for n in &nodes[1..] {
        signal(n, "-CONT");
    }
    // No other one was named: it goes on.
    let limit = "SET statement_timeout = '60s'";
    client.batch_execute(limit).await.expect("a setting");
    let more = client.batch_execute("INSERT INTO kept VALUES (3)").await;
    more.expect("the primary holds its lease again");
}
