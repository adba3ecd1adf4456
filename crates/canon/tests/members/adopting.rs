//! Clusters that were made by hand become ones that run themselves, while they work.
//!
//! The directories are those of `tests/upgrade`: a primary and a replica as a build of that day left them, which no control plane has touched. A replica that answers
//! as a build without `canon cluster adopt` does is a planted fault. An older program has to be named: `CANON_PREVIOUS_BUILD`.

use super::*;
use std::path::Path;

/// A server with more variables, and with the directory that the archive has for it.
async fn by_hand(
    name: &str,
    of: Option<&Node>,
    archived: Option<&str>,
    more: &[(&str, &str)],
) -> Node {
    let http = free_port();
    let http_at = format!("127.0.0.1:{http}");
    let of = of.map(at);
    let mut env = vec![("CANON_NODE_NAME", name), ("CANON_HTTP", http_at.as_str())];
    env.extend(of.as_deref().map(|of| ("CANON_REPLICA_OF", of)));
    env.extend(more);
    let mut server = Server::canon(&env);
    if let Some(folder) = archived {
        unpack(&server, folder);
    }
    server.launch();
    server.ready().await;
    Node { server, http }
}

fn unpack(server: &Server, folder: &str) {
    let archive = format!(
        "{}/tests/upgrade/2026-11-28.tar.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let scratch = server.scratch();
    let unpacked = Command::new("tar")
        .args(["-xzf", &archive, "-C"])
        .arg(scratch)
        .status();
    assert!(unpacked.expect("tar runs").success());
    std::fs::rename(scratch.join(folder), server.data_dir()).expect("the archive has it");
    // The secret of that cluster, where `launch` looks for one.
    let secret = server.data_dir().join("CANON_SECRET");
    std::fs::copy(secret, scratch.join("secret")).expect("it has a secret");
}

fn adopt(node: &Node) -> (bool, String) {
    canon(&["cluster", "adopt", "--server", &at(node)])
}

/// Sessions that were there before; each says its number again.
async fn sessions(nodes: &[Node]) -> Vec<(tokio_postgres::Client, String)> {
    let mut all = Vec::new();
    for n in nodes {
        let c = n.server.connect().await;
        let pid = one(&c, "SELECT pg_backend_pid()").await;
        all.push((c, pid));
    }
    all
}

fn has_no_control(data: &Path) -> bool {
    !data.join("control").exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_made_by_hand_is_taken_over_while_it_runs() {
    if skip() {
        return;
    }
    let a = by_hand("a", None, Some("primary"), &[]).await;
    let b = by_hand("b", Some(&a), Some("replica"), &[]).await;
    let secret = a.server.data_dir().join("CANON_SECRET");
    let secret = secret.display().to_string();
    let of_it = [("CANON_CLUSTER_SECRET_FILE", secret.as_str())];
    let c = by_hand("c", Some(&a), None, &of_it).await;
    let mut nodes = [a, b, c];
    for n in &nodes {
        assert!(has_no_control(&n.server.data_dir()));
    }
    follows(&nodes[1]).await;
    follows(&nodes[2]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(50, &nodes).await;
    let before = sessions(&nodes).await;

    let (done, said) = adopt(&nodes[1]);
    assert!(!done && said.contains("not the primary"), "{said}");
    let (done, said) = adopt(&nodes[0]);
    assert!(
        done && said.contains("Members of the cluster now: "),
        "{said}"
    );
    assert!(
        !said.contains("Left out") && !said.contains("On the way"),
        "{said}"
    );
    writers.more(50, &nodes).await;
    for n in &nodes {
        can_fail_over(n).await;
    }
    // No server has started again, and so none has taken a copy.
    for (c, pid) in &before {
        assert_eq!(one(c, "SELECT pg_backend_pid()").await, *pid);
    }
    drop(before);
    let (done, said) = adopt(&nodes[0]);
    assert!(!done && said.contains("no replica follows"), "{said}");

    nodes[0].server.kill();
    writers.more(50, &nodes).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    for n in &nodes {
        can_fail_over(n).await;
    }
    // Each starts again with the settings that it had: those of the replicas still name the first primary.
    for i in [1, 2] {
        nodes[i].server.kill();
        writers.more(20, &nodes).await;
        nodes[i].server.launch();
        nodes[i].server.ready().await;
        let log = std::fs::read_to_string(nodes[i].server.scratch().join("log"));
        assert!(log.expect("a log").contains("--replica-of is not taken"));
        can_fail_over(&nodes[i]).await;
    }
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
        let c = n.server.connect().await;
        assert_eq!(one(&c, "SELECT count(*) FROM stock").await, "51");
    }
}

/// The servers start again one after the other, the replica first, as for a new build, and are taken over then. The build before is the program that
/// `CANON_PREVIOUS_BUILD` names, else this one.
///
/// ```text
/// CANON_PREVIOUS_BUILD=/path/of/canon cargo test -p canon --test members previous
/// ```
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_a_previous_build_is_taken_over_once_its_servers_are_new() {
    if skip() {
        return;
    }
    let program = std::env::var("CANON_PREVIOUS_BUILD");
    let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_canon").into());
    println!("the build before: {program}");
    let old = [(common::PROGRAM, program.as_str())];
    let a = by_hand("a", None, None, &old).await;
    let b = by_hand("b", Some(&a), None, &old).await;
    follows(&b).await;
    let first = at(&a);
    let mut nodes = [a, b];
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(50, &nodes).await;
    for (i, name, of) in [(1, "b", Some(first.as_str())), (0, "a", None)] {
        nodes[i].server.kill();
        let http = format!("127.0.0.1:{}", nodes[i].http);
        let mut env = vec![("CANON_NODE_NAME", name), ("CANON_HTTP", http.as_str())];
        env.extend(of.map(|of| ("CANON_REPLICA_OF", of)));
        nodes[i].server.set_env(&env);
        nodes[i].server.launch();
        nodes[i].server.ready().await;
        writers.more(50, &nodes).await;
    }
    follows(&nodes[1]).await;
    let (done, said) = adopt(&nodes[0]);
    assert!(done && said.contains("now: b."), "{said}");
    writers.more(50, &nodes).await;
    let [a, b] = nodes;
    let c = node("c", Some(&a.server), &[]).await;
    let mut nodes = [a, b, c];
    for n in &nodes {
        can_fail_over(n).await;
    }
    nodes[0].server.kill();
    writers.more(50, &nodes).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// The primary was started as a replica, and promoted by hand since.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_settings_name_another_one_founds_the_cluster() {
    if skip() {
        return;
    }
    let a = by_hand("a", None, None, &[]).await;
    let b = by_hand("b", Some(&a), None, &[]).await;
    follows(&b).await;
    let mut nodes = [a, b];
    prepare(&nodes).await;
    let (done, said) = canon(&["promote", "--server", &at(&nodes[1])]);
    assert!(done, "{said}");
    nodes[0].server.kill();
    let http = format!("127.0.0.1:{}", nodes[0].http);
    let of = at(&nodes[1]);
    nodes[0].server.set_env(&[
        ("CANON_NODE_NAME", "a"),
        ("CANON_HTTP", &http),
        ("CANON_REPLICA_OF", &of),
    ]);
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    let (done, said) = adopt(&nodes[1]);
    assert!(done && said.contains("now: a."), "{said}");
    let [a, b] = nodes;
    let c = node("c", Some(&a.server), &[]).await;
    let mut nodes = [a, b, c];
    for n in &nodes {
        can_fail_over(n).await;
    }
    nodes[1].server.kill();
    writers.more(20, &nodes).await;
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    follows(&nodes[1]).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// Only members count once there are two, so as many have to become members as commits wait for.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_that_can_be_taken_in_change_nothing() {
    if skip() {
        return;
    }
    let two = [("CANON_SYNCHRONOUS_REPLICAS", "2")];
    let a = by_hand("a", None, None, &two).await;
    let b = by_hand("b", Some(&a), None, &[]).await;
    let old = [("CANON_PLANTED", "adopt.unknown")];
    let c = by_hand("c", Some(&a), None, &old).await;
    let mut nodes = [a, b, c];
    follows(&nodes[1]).await;
    follows(&nodes[2]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes[..1], 2);
    writers.more(20, &nodes).await;
    let (done, said) = adopt(&nodes[0]);
    assert!(
        !done && said.contains("commits wait for 2 replicas"),
        "{said}"
    );
    assert!(
        said.contains("c: this server takes part in no cluster"),
        "{said}"
    );
    for n in &nodes {
        assert!(has_no_control(&n.server.data_dir()));
    }
    writers.more(20, &nodes).await;
    // A build that knows the question.
    nodes[2].server.kill();
    let (http, of) = (format!("127.0.0.1:{}", nodes[2].http), at(&nodes[0]));
    nodes[2].server.set_env(&[
        ("CANON_NODE_NAME", "c"),
        ("CANON_HTTP", &http),
        ("CANON_REPLICA_OF", &of),
    ]);
    nodes[2].server.launch();
    nodes[2].server.ready().await;
    follows(&nodes[2]).await;
    let (done, said) = adopt(&nodes[0]);
    assert!(done && !said.contains("Left out"), "{said}");
    writers.more(20, &nodes).await;
    for n in &nodes {
        can_fail_over(n).await;
    }
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// A replica of a build that does not know a shorter lease is left out, and no commit waits for it.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_a_build_that_does_not_know_shorter_leases_is_left_out() {
    if skip() {
        return;
    }
    let short = ("CANON_FAILOVER_LEASE", "600ms");
    let a = by_hand("a", None, None, &[short]).await;
    let b = by_hand("b", Some(&a), None, &[short]).await;
    let (variable, value) = of_previous_build();
    let old = [(variable, value.as_str())];
    let c = by_hand("c", Some(&a), None, &old).await;
    let nodes = [a, b, c];
    follows(&nodes[1]).await;
    follows(&nodes[2]).await;
    prepare(&nodes).await;
    let (done, said) = adopt(&nodes[0]);
    assert!(done && said.contains("now: b."), "{said}");
    assert!(
        said.contains("Left out: c: the cluster has set failover.lease"),
        "{said}"
    );
    assert!(has_no_control(&nodes[2].server.data_dir()));
    let writers = Writers::start(&nodes[..1], 2);
    writers.more(20, &nodes).await;
    let acknowledged = writers.end().await;
    has_all(&nodes[1], &acknowledged).await;
}
