//! Sites of a cluster that chooses its primary itself: a site that joins is a member, one that follows by hand is none.

use super::settings::{is_set, set, status};
use super::*;

/// A site that joins at this server.
async fn site(name: &str, join: &Server, more: &[(&str, &str)]) -> Node {
    let all = [&[("CANON_SITE", "true")], more].concat();
    node(name, Some(join), &all).await
}

/// Waits until this node says that the site of this name is a member, or is none.
async fn is_member(node: &Node, name: &str, is: bool) {
    let line = format!("canon_member_site{{member=\"{name}\"}} 1");
    says(node, "whether the site is a member", |m| {
        m.contains(&line) == is
    })
    .await;
}

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

/// The site joins at a member and becomes one: it follows whichever node the members name. After a hand-over its sessions go on; after a fail-over it may have more than
/// the new primary, and starts again.
#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_joins_follows_fail_overs_by_itself() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let mut d = site("d", &nodes[2].server, &[]).await;
    follows(&d).await;
    for n in [&nodes[0], &d] {
        is_member(n, "d", true).await;
        let no_vote = "canon_member_votes{member=\"d\"} 0";
        says(n, "it does not vote", |m| m.contains(no_vote)).await;
    }
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
    assert!(!done && said.contains("is a site"), "{said}");
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

/// `canon status` shows it. It counts for nothing that commits wait for, moves, leaves, and joins again.
#[tokio::test(flavor = "multi_thread")]
async fn a_site_is_a_member_that_moves_and_leaves() {
    if skip() {
        return;
    }
    let nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let mut d = site("d", &nodes[1].server, &[]).await;
    is_member(&nodes[0], "d", true).await;
    let shown = status(&nodes[0]);
    let line = |name: &str| {
        let mut all = shown.lines();
        all.find(|l| l.trim_start().starts_with(name))
            .unwrap_or_default()
            .to_owned()
    };
    let of_site = line("d ");
    for word in ["site", "does not vote", &at(&d)] {
        assert!(of_site.contains(word), "{shown}");
    }
    says(&nodes[0], "how far it is", |m| {
        m.contains("canon_replication_lag_epochs{replica=\"d\"}")
    })
    .await;
    let (done, said) = set(&nodes[0], "synchronous_replicas=3");
    assert!(
        !done && said.contains("2 other copies that count"),
        "{said}"
    );

    let writers = Writers::start_at(vec![d.server.config()], 2, 1);
    writers.more(20, &nodes).await;
    let mut acknowledged = writers.end().await;
    d.server.kill();
    d.server.port = free_port();
    d.server.launch();
    d.server.ready().await;
    let moved = format!(
        "canon_member_address{{member=\"d\",address=\"{}\"}}",
        at(&d)
    );
    says(&nodes[0], "it is elsewhere", |m| m.contains(&moved)).await;
    follows(&d).await;

    let ended = leaves(&mut d).await;
    assert!(ended.success(), "{}", d.server.log_tail());
    is_member(&nodes[0], "d", false).await;
    d.server.launch();
    d.server.ready().await;
    is_member(&nodes[0], "d", true).await;
    follows(&d).await;
    let writers = Writers::start_at(vec![d.server.config()], 2, 1_000_000);
    writers.more(20, &nodes).await;
    acknowledged.extend(writers.end().await);
    has_all(&d, &acknowledged).await;

    // Its directory is a site's.
    d.server.kill();
    let http = format!("127.0.0.1:{}", d.http);
    let join = at(&nodes[0]);
    let own = [
        ("CANON_NODE_NAME", "d"),
        ("CANON_HTTP", http.as_str()),
        ("CANON_CLUSTER_JOIN", join.as_str()),
    ];
    d.server.set_env(&own);
    d.server.launch();
    let refused = d.server.exited(HANG).await;
    let log = d.server.log_tail();
    assert!(refused.is_some_and(|s| !s.success()), "{log}");
    assert!(log.contains("belongs to a site"), "{log}");
}

/// Beside a server and a witness. Where it may not lead, nothing is named; where it may, it takes over and its sessions go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_site_takes_over_only_where_it_may_lead() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let w = witness::witness("w", &a.server);
    let d = site("d", &a.server, &[]).await;
    let mut nodes = [a, d];
    prepare(&nodes).await;
    is_member(&nodes[0], "d", true).await;
    is_member(&w, "d", true).await;
    says(&nodes[0], "why not", |m| {
        m.contains("the only other copies are sites, which may not lead")
    })
    .await;
    let here = Writers::start_at(vec![nodes[1].server.config()], 2, 1);
    here.more(20, &nodes).await;
    // Much longer than a fail-over takes.
    nodes[0].server.kill();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(leader(&nodes[1..]), None);
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    here.more(20, &nodes).await;
    let (done, said) = canon(&["promote", "--server", &at(&nodes[1])]);
    assert!(!done && said.contains("sites may not lead"), "{said}");

    let said = is_set(&nodes[1], "failover.sites_may_lead=on");
    assert!(said.contains("Commits wait for 1 replica"), "{said}");
    for n in [&nodes[0], &nodes[1], &w] {
        can_fail_over(n).await;
    }
    let c = nodes[1].server.connect().await;
    let written = c.batch_execute("INSERT INTO kept VALUES (-1)").await;
    written.expect("certified");
    nodes[0].server.kill();
    here.more(30, &nodes).await;
    assert_eq!(primary(&nodes[1..]).await, 0);
    let written = c.batch_execute("INSERT INTO kept VALUES (-2)").await;
    written.expect("the session goes on");
    let (done, said) = set(&nodes[1], "failover.sites_may_lead=off");
    assert!(!done && said.contains("the primary is a site"), "{said}");

    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    can_fail_over(&nodes[1]).await;
    hand_over(&nodes[0]).await;
    // It is a site again.
    here.more(30, &nodes).await;
    follows(&nodes[1]).await;
    is_set(&nodes[0], "failover.sites_may_lead=off");
    says(&nodes[0], "one votes", |m| {
        m.contains("canon_cluster_wanted 0") && m.contains("canon_member_votes{member=\"d\"} 0")
    })
    .await;
    let mut acknowledged = here.end().await;
    acknowledged.extend([-1, -2]);
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// What clients of a site were told of a row that each has for itself.
#[derive(Default)]
struct Counted {
    committed: i64,
    in_doubt: i64,
}

/// One client adds 1 to its row until it is to stop.
async fn count(config: tokio_postgres::Config, row: usize, stop: Arc<AtomicBool>) -> Counted {
    let mut told = Counted::default();
    let sql = format!("UPDATE counters SET n = n + 1 WHERE k = {row}");
    while !stop.load(Ordering::SeqCst) {
        let Ok(client) = connect_to(&config).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        while !stop.load(Ordering::SeqCst) {
            match client.batch_execute(&sql).await {
                Ok(()) => told.committed += 1,
                Err(e) if common::sqlstate(&e) == "40001" => {}
                Err(_) => {
                    told.in_doubt += 1;
                    break;
                }
            }
        }
    }
    told
}

/// Clients of a site add to counters while primaries are killed. For each counter: what was told, and what is there.
async fn counters_under_fail_overs(kills: usize, more: &[(&str, &str)]) -> Vec<(Counted, i64)> {
    const ROWS: usize = 8;
    let mut nodes = of_three(more).await;
    let c = nodes[0].server.connect().await;
    let sql = format!(
        "CREATE TABLE counters (k int PRIMARY KEY, n bigint NOT NULL);
         INSERT INTO counters SELECT k, 0 FROM generate_series(1, {ROWS}) k"
    );
    c.batch_execute(&sql).await.expect("a table");
    prepare(&nodes).await;
    let d = site("d", &nodes[1].server, more).await;
    is_member(&nodes[0], "d", true).await;
    follows(&d).await;
    let stop = Arc::new(AtomicBool::new(false));
    let clients = (1..=ROWS).map(|k| tokio::spawn(count(d.server.config(), k, stop.clone())));
    let clients: Vec<_> = clients.collect();
    for _ in 0..kills {
        for n in &nodes {
            can_fail_over(n).await;
        }
        let seen = Writers::start_at(vec![d.server.config()], 1, 1 + rows_kept(&d).await);
        seen.more(30, &nodes).await;
        let leads = primary(&nodes).await;
        nodes[leads].server.kill();
        seen.more(10, &nodes).await;
        let acknowledged = seen.end().await;
        nodes[leads].server.launch();
        nodes[leads].server.ready().await;
        has_all(&nodes[leads], &acknowledged).await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut told = Vec::new();
    for c in clients {
        told.push(c.await.expect("a client ends"));
    }
    let c = nodes[primary(&nodes).await].server.connect().await;
    let found = rows(&c, "SELECT n FROM counters ORDER BY k").await;
    let found = found.iter().map(|r| {
        let n = r[0].as_ref().expect("not NULL");
        n.parse().expect("a number")
    });
    told.into_iter().zip(found).collect()
}

/// The highest number that is kept.
async fn rows_kept(node: &Node) -> i64 {
    let c = node.server.connect().await;
    let found = rows(&c, "SELECT coalesce(max(n), 0) FROM kept").await;
    let n = found[0][0].as_ref().expect("not NULL");
    n.parse().expect("a number")
}

/// The first counter that does not hold what was told.
fn wrong(counters: &[(Counted, i64)]) -> Option<String> {
    let mut all = counters.iter();
    let held =
        |(told, n): &&(Counted, i64)| (told.committed..=told.committed + told.in_doubt).contains(n);
    all.find(|c| !held(c)).map(|(told, n)| {
        let Counted {
            committed,
            in_doubt,
        } = told;
        format!("{n} is there; {committed} were acknowledged, {in_doubt} are in doubt")
    })
}

/// Candidates that are in flight when the primary is lost are asked again under the new term, and commit once.
#[tokio::test(flavor = "multi_thread")]
async fn candidates_in_flight_commit_once_when_the_primary_is_lost() {
    if skip() {
        return;
    }
    let counters = counters_under_fail_overs(3, &[]).await;
    assert_eq!(wrong(&counters), None);
    let committed: i64 = counters.iter().map(|c| c.0.committed).sum();
    assert!(committed > 100, "{committed}");
}

/// Sites that are told nothing by their log have the new primary's answer alone.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_new_primary_answers_what_the_old_one_has_committed() {
    if skip() {
        return;
    }
    let deaf = [("CANON_PLANTED", "site.log_tells_nothing")];
    let counters = counters_under_fail_overs(3, &deaf).await;
    assert_eq!(wrong(&counters), None);
}

/// A primary that runs a repeated request again refuses what has committed, since the candidate lost to itself.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_is_run_again_under_a_new_term_is_found() {
    if skip() {
        return;
    }
    let planted = "site.log_tells_nothing,site.number_again";
    let planted = [("CANON_PLANTED", planted)];
    for _ in 0..4 {
        if let Some(what) = wrong(&counters_under_fail_overs(3, &planted).await) {
            return println!("{what}");
        }
    }
    panic!("nothing was found");
}

/// A build that would count the copy of a site keeps it off. It follows, and is taken in when all members know sites.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_site_is_taken_in_when_all_members_know_sites() {
    if skip() {
        return;
    }
    let old = [("CANON_PLANTED", "join.no_sites")];
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let c = node("c", Some(&a.server), &old).await;
    let mut nodes = [a, b, c];
    prepare(&nodes).await;
    can_fail_over(&nodes[0]).await;
    let d = site("d", &nodes[0].server, &[]).await;
    follows(&d).await;
    let writers = Writers::start_at(vec![d.server.config()], 1, 1);
    writers.more(10, &nodes).await;
    let deadline = Instant::now() + HANG;
    while !d
        .server
        .log_tail()
        .contains("does not know sites as members")
    {
        assert!(Instant::now() < deadline, "{}", d.server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    is_member(&nodes[0], "d", false).await;
    let (done, said) = set(&nodes[0], "failover.sites_may_lead=on");
    assert!(!done && said.contains("c does not know"), "{said}");

    let http = format!("127.0.0.1:{}", nodes[2].http);
    let join = at(&nodes[0]);
    nodes[2].server.kill();
    let own = [
        ("CANON_NODE_NAME", "c"),
        ("CANON_HTTP", http.as_str()),
        ("CANON_CLUSTER_JOIN", join.as_str()),
    ];
    nodes[2].server.set_env(&own);
    nodes[2].server.launch();
    nodes[2].server.ready().await;
    is_member(&nodes[0], "d", true).await;
    writers.more(10, &nodes).await;
    has_all(&d, &writers.end().await).await;
}
