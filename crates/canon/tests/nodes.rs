//! Which node is believed, over real sockets: strangers that may replicate, nodes with another secret, a hostile follower that sends each
//! message with each lie, and how an old primary hears of a newer term.
//!
//! Left out on purpose: what the deciders do with each message alone (`replica::ship::tests::hostile`), and connections that a middleman
//! passes on, which TLS ends (`tls.rs`).

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use base::Position;
use common::peer::{Proof, RawPeer};
use common::{PATIENCE, Server};
use helpers::*;
use replica::ship::{Message, Refusal, VERSION};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const FOLLOWER: &str = "CREATE ROLE follower LOGIN REPLICATION";

/// Cluster, term and position of what a session has seen.
async fn seen(c: &Client) -> (u128, u64, Position) {
    rows(c, "SELECT count(*) FROM pg_class").await;
    let token = one(c, "SHOW canon.commit_token").await;
    let mut parts = token.split(':');
    let mut part = || parts.next().expect("three parts");
    let cluster = u128::from_str_radix(part(), 16).expect("a cluster");
    let term = part().parse().expect("a term");
    let (high, low) = part().split_once('/').expect("a position");
    let word = |w| u64::from_str_radix(w, 16).expect("hexadecimal");
    (
        cluster,
        term,
        Position::from_u64(word(high) << 32 | word(low)),
    )
}

fn hello(cluster: u128, terms: &[(u64, Position)], last: Position) -> Message {
    Message::Hello {
        version: u16::from(VERSION),
        cluster,
        node: "mallory".into(),
        terms: terms.to_vec(),
        last,
        ring: 1 << 20,
    }
}

fn ack(term: u64, at: [Position; 4]) -> Message {
    let [received, persisted, applied, visible] = at;
    Message::Ack {
        term,
        received,
        persisted,
        applied,
        visible,
        echo_micros: 0,
    }
}

/// One that is sent the log behind this position.
fn following(s: &Server, proof: &Proof, cluster: u128, term: u64, last: Position) -> RawPeer {
    let user = match proof {
        Proof::None => "follower",
        Proof::Node(..) => "canon",
    };
    let mut peer = RawPeer::connect(s, user, "canon", cluster, proof).expect("it is let in");
    peer.turn("START_REPLICATION").expect("turned over");
    let terms = match term {
        1 => vec![(1, Position::ZERO)],
        t => vec![(1, Position::ZERO), (t, Position::ZERO)],
    };
    peer.say(&hello(cluster, &terms, last));
    peer
}

async fn leads(c: &Client) {
    assert_eq!(one(c, "SHOW transaction_read_only").await, "off");
    rows(c, "INSERT INTO t VALUES (1)").await;
}

async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_reads_the_log_and_a_commit_does_not_count_it() {
    if skip() {
        return;
    }
    let mut p = Server::canon(&[("CANON_SYNCHRONOUS_REPLICAS", "1")]);
    p.launch();
    let mut r = replica(&p, "real").await;
    p.ready().await;
    let c = p.connect().await;
    rows(&c, FOLLOWER).await;
    rows(&c, "CREATE TABLE t (v int)").await;
    let (cluster, term, at) = seen(&c).await;
    // By the name of the real one, which is killed.
    r.kill();
    let gone = "SELECT count(*) FROM pg_stat_replication";
    until(&c, gone, "0").await;
    let mut peer = following(&p, &Proof::None, cluster, term, at);
    let w = p.connect().await;
    let commit =
        tokio::spawn(async move { w.batch_execute("INSERT INTO t VALUES (1)").await.is_ok() });
    // It acknowledges all that it is sent, the commit too, and the ticks of a second.
    let heard = tokio::task::spawn_blocking(move || {
        let (mut batches, mut ticks) = (0, 0);
        while batches == 0 || ticks < 100 {
            let m = peer.hear()?;
            match m {
                Message::Batch { .. } => batches += 1,
                _ => ticks += u64::from(batches > 0),
            }
            if let Some(step) = m.step() {
                peer.say(&ack(step.term, [step.upto; 4]));
            }
        }
        Some(peer)
    });
    let heard = tokio::time::timeout(PATIENCE, heard).await;
    let _peer = heard
        .expect("it is sent the log")
        .expect("a follower")
        .expect("it is not closed");
    let listed = rows(
        &c,
        "SELECT sync_state, pg_wal_lsn_diff(flush_lsn, '0/0') FROM pg_stat_replication",
    )
    .await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0][0].as_deref(), Some("async"));
    assert!(!commit.is_finished(), "no node of the cluster has it");
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "0");
    // The real one comes back, and the commit counts.
    r.launch();
    let done = tokio::time::timeout(PATIENCE, commit).await;
    assert!(done.expect("in time").expect("a session"));
}

/// Everything that a follower can send, true and false, as a stranger and as a node: the primary leads on, unless a node proves a newer term.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_follower_sends_each_message_with_each_lie() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    rows(&c, FOLLOWER).await;
    rows(&c, "CREATE TABLE t (v int)").await;
    let (cluster, term, at) = seen(&c).await;
    let far = Position::MAX;
    let zero = Position::ZERO;
    let above = Position::from_u64(at.as_u64() + (1 << 40));
    let one_above = |p: Position| Position::from_u64(p.as_u64() + 1);
    let step = |upto| Message::Tick {
        term,
        stream: cluster,
        after: zero,
        upto,
        published: upto,
        sent_micros: 0,
    };
    let lies = vec![
        // Acknowledged and not sent.
        ack(term, [far; 4]),
        ack(term, [above; 4]),
        ack(term, [at, one_above(at), at, at]),
        ack(term, [at, at, far, at]),
        ack(term, [at, at, at, far]),
        // Of other terms.
        ack(0, [far; 4]),
        ack(term - 1, [far; 4]),
        // Resumed where nothing is.
        Message::Resume { from: far },
        Message::Resume { from: zero },
        Message::Fetch {
            offset: u64::MAX,
            bytes: u32::MAX,
        },
        Message::Fetch {
            offset: 0,
            bytes: 0,
        },
        // What only a primary says, and what is said once.
        hello(cluster, &[(term, zero)], at),
        Message::Sealed { term, last: far },
        step(far),
        Message::Welcome {
            cluster,
            term,
            terms: vec![(term, zero)],
            start: replica::ship::Start::Resume(far),
        },
        Message::Checkpoint {
            offset: 0,
            last: true,
            bytes: vec![0; 100],
        },
    ];
    for proof in [Proof::None, Proof::member("mallory", term)] {
        for lie in &lies {
            let mut peer = following(&p, &proof, cluster, term, at);
            assert!(matches!(peer.hear(), Some(Message::Welcome { .. })));
            peer.say(lie);
            let ends = !matches!(
                lie,
                Message::Ack { term: t, .. } if *t != term
            ) && !matches!(lie, Message::Resume { from } if *from == zero)
                && !matches!(lie, Message::Fetch { .. });
            if ends {
                assert!(peer.is_closed(), "{lie:?}");
            }
            drop(peer);
            leads(&c).await;
        }
        // First words that are lies.
        for first in [
            hello(cluster + 1, &[(term, zero)], at),
            hello(cluster, &[(term, zero)], far),
            hello(cluster, &[], far),
            hello(0, &[(term, zero)], far),
            Message::Seal,
            ack(term, [far; 4]),
        ] {
            let user = "follower";
            let peer = RawPeer::connect(&p, user, "canon", cluster, &proof);
            let mut peer = peer.expect("it is let in");
            peer.turn("START_REPLICATION").expect("turned over");
            peer.say(&first);
            peer.say(&ack(term, [far; 4]));
            assert!(peer.is_closed(), "{first:?}");
            leads(&c).await;
        }
        // Terms that cannot be.
        for t in [base::MAX_TERM + 1, u64::MAX] {
            let mut peer = following(&p, &proof, cluster, t, at);
            assert!(peer.is_closed(), "{t}");
            leads(&c).await;
        }
    }
    // A stranger that speaks of a newer term, in each message that has one, or asks to take over.
    for (terms, next) in [
        (term + 1, None),
        (base::MAX_TERM, None),
        (term, Some(ack(term + 1, [at; 4]))),
        (term, Some(ack(base::MAX_TERM, [at; 4]))),
        (term, Some(Message::Seal)),
    ] {
        let mut peer = following(&p, &Proof::None, cluster, terms, at);
        if let Some(next) = &next {
            peer.say(next);
        }
        assert!(peer.is_closed(), "{next:?}");
        leads(&c).await;
    }
    assert!(!p.data_dir().join("CANON_HEARD").exists());
    assert!(!p.data_dir().join("CANON_SEALED").exists());
    // Neither the region, nor held snapshots, nor certification are for strangers.
    for command in ["READ_REGION", "HOLD_SNAPSHOTS", "CERTIFY_COMMITS"] {
        let peer = RawPeer::connect(&p, "follower", "canon", cluster, &Proof::None);
        let refused = peer.expect("it is let in").turn(command);
        assert_eq!(refused.expect_err("refused").0, "42501", "{command}");
    }
    // A proven node takes one name.
    let other = Proof::member("somebody else", term);
    let mut peer = following(&p, &other, cluster, term, at);
    assert!(peer.is_closed());
    leads(&c).await;
}

/// The bytes of the log's groups above this position, as a node is sent them.
fn sent(s: &Server, cluster: u128, term: u64, from: Position, count: usize) -> Vec<[u8; 128]> {
    let mut peer = following(s, &Proof::member("mallory", term), cluster, term, from);
    let mut groups = Vec::new();
    while groups.len() < count {
        if let Message::Batch { group, .. } = peer.hear().expect("the log") {
            groups.push(*group.first_chunk().expect("a header"));
        }
    }
    groups
}

/// A node that has the cluster's secret says that it holds more of the primary's history, and shows each thing that it can but for the truth.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_it_is_ahead_and_does_not_show_it_stops_nobody() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (v int)").await;
    let (cluster, term, from) = seen(&c).await;
    leads(&c).await;
    leads(&c).await;
    let read = {
        let p = &p;
        tokio::task::block_in_place(|| sent(p, cluster, term, from, 2))
    };
    let none = wal::Around::default();
    let shown = |at: Option<usize>, next: Option<usize>| wal::Around {
        at: at.map(|i| read[i]),
        next: next.map(|i| read[i]),
        ..none.clone()
    };
    let mut damaged = shown(Some(1), Some(1));
    damaged.next.as_mut().expect("one")[70] ^= 1;
    let lies = [
        Some(none.clone()),
        Some(shown(Some(1), None)),
        Some(shown(None, Some(1))),
        Some(shown(Some(0), Some(1))),
        Some(shown(Some(1), Some(1))),
        Some(shown(Some(1), Some(0))),
        Some(damaged),
        Some(wal::Around {
            checkpoint: Some(read[0]),
            ..none.clone()
        }),
        None,
    ];
    let (_, _, at) = seen(&c).await;
    let (near, far) = (Position::from_u64(at.as_u64() + (1 << 30)), Position::MAX);
    for lie in &lies {
        for last in [near, far] {
            let mut peer = following(&p, &Proof::member("mallory", term), cluster, term, last);
            assert!(matches!(peer.hear(), Some(Message::Show { .. })));
            if let Some(lie) = lie {
                peer.say(&Message::Shown(Box::new(lie.clone())));
            }
            let refused = peer.hear();
            let unproven = matches!(
                &refused,
                Some(Message::Refused {
                    reason: Refusal::Unproven { .. },
                    ..
                })
            );
            assert!(unproven, "{lie:?}: {refused:?}");
            assert!(peer.is_closed());
            leads(&c).await;
        }
    }
    let log = std::fs::read_to_string(p.scratch().join("log")).expect("a log");
    assert!(log.contains("does not show it"), "{log}");
    // It is a node all the same, and follows when it says the truth.
    let mut peer = following(&p, &Proof::member("mallory", term), cluster, term, at);
    assert!(matches!(peer.hear(), Some(Message::Welcome { .. })));
}

/// The same lie, where the bare word is believed: so the test above would see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_believes_the_bare_word_is_stopped_by_it() {
    if skip() {
        return;
    }
    let mut p = Server::start_with(&[("CANON_PLANTED", "ship.bare_word")]).await;
    let c = p.connect().await;
    let (cluster, term, _) = seen(&c).await;
    let _peer = following(
        &p,
        &Proof::member("mallory", term),
        cluster,
        term,
        Position::MAX,
    );
    let status = p.exited(PATIENCE).await;
    assert!(status.is_some_and(|s| !s.success()), "{}", p.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_replication_adopts_no_session() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    rows(&c, FOLLOWER).await;
    rows(&c, "CREATE TABLE t (v int)").await;
    let (cluster, term, _) = seen(&c).await;
    for user in ["follower", "canon"] {
        for proof in [Proof::None, Proof::forged("mallory", term)] {
            let refused = RawPeer::connect(&p, user, "forward", cluster, &proof).err();
            let (code, message) = refused.expect("refused");
            assert_eq!(code, "28000", "{user}: {message}");
        }
    }
    // The proof alone does not do: the role must be one that replicates.
    rows(&c, "CREATE ROLE other LOGIN").await;
    let node = Proof::member("a", term);
    let refused = RawPeer::connect(&p, "other", "forward", cluster, &node).err();
    assert_eq!(refused.expect("refused").0, "42501");
    assert!(RawPeer::connect(&p, "follower", "forward", cluster, &node).is_ok());
    leads(&c).await;
}

/// What a session of a replica may do at the primary is what its own role may do.
#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_session_has_the_rights_of_the_role_that_logged_in() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    let sql = "CREATE ROLE clerk LOGIN; CREATE ROLE teller LOGIN; CREATE TABLE t (v int);
        GRANT SELECT, INSERT ON t TO teller";
    rows(&c, sql).await;
    let r = replica(&p, "r").await;
    let as_role = async |role: &str| {
        let mut config = r.config();
        config.user(role);
        common::connect_to(&config).await.expect("it logs in")
    };
    let (clerk, teller) = (as_role("clerk").await, as_role("teller").await);
    rows(&teller, "INSERT INTO t VALUES (1)").await;
    assert_eq!(refused(&clerk, "INSERT INTO t VALUES (1)").await.0, "42501");
    assert_eq!(refused(&teller, "DELETE FROM t").await.0, "42501");
    assert_eq!(refused(&clerk, "CREATE ROLE more").await.0, "42501");
    // A role that may not log in any more has no session there either.
    rows(&c, "ALTER ROLE teller NOLOGIN").await;
    let again = as_role("clerk").await;
    assert_eq!(refused(&again, "SET ROLE canon").await.0, "42501");
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_secret_does_not_become_a_replica() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let of = format!("{}:{}", p.host, p.port);
    let mut wrong = Server::canon(&[("CANON_REPLICA_OF", &of)]);
    let secret = common::cluster_secret(wrong.scratch());
    std::fs::write(&secret, "f".repeat(64)).expect("written");
    wrong.launch();
    let ended = wrong.exited(PATIENCE).await.expect("it does not start");
    assert!(!ended.success());
    let said = wrong.log_tail();
    assert!(
        said.contains("does not have this cluster's secret"),
        "{said}"
    );
    assert!(said.contains("--cluster-secret-file"), "{said}");

    // Readable by others.
    let mut open = Server::canon(&[("CANON_REPLICA_OF", &of)]);
    let secret = common::cluster_secret(open.scratch());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&secret, mode).expect("ours");
    open.launch();
    assert!(open.exited(PATIENCE).await.is_some_and(|s| !s.success()));
    let said = open.log_tail();
    assert!(said.contains("may be read by others"), "{said}");

    // A replica that was given it keeps it, and starts without the file.
    let mut r = replica(&p, "r").await;
    let kept = std::fs::read_to_string(r.data_dir().join("CANON_SECRET"));
    assert_eq!(kept.expect("kept"), common::SECRET);
    r.kill();
    std::fs::remove_file(r.scratch().join("secret")).expect("it was there");
    let file = r.data_dir().join("CANON_SECRET").display().to_string();
    r.set_env(&[
        ("CANON_REPLICA_OF", &of),
        ("CANON_NODE_NAME", "r"),
        ("CANON_CLUSTER_SECRET_FILE", &file),
    ]);
    r.launch();
    r.ready().await;
    let c = p.connect().await;
    until(&c, "SELECT count(*) FROM pg_stat_replication", "1").await;
}

/// Tokens of made-up terms, by a role that may do nothing else: the primary asks the nodes that it knows, and leads on.
#[tokio::test(flavor = "multi_thread")]
async fn forged_tokens_depose_nobody() {
    if skip() {
        return;
    }
    let http = format!("127.0.0.1:{}", common::free_port());
    let p = Server::start_with(&[("CANON_HTTP", &http)]).await;
    let c = p.connect().await;
    rows(&c, "CREATE ROLE visitor LOGIN; CREATE TABLE t (v int)").await;
    let _r = replica(&p, "r").await;
    until(&c, "SELECT count(*) FROM pg_stat_replication", "1").await;
    // It is told of the primary's own term first.
    let asked = "canon_nodes_asked_total";
    wait_for("the replica is told", async || counted(&http, asked) > 0).await;
    let before = counted(&http, asked);
    let (cluster, term, at) = seen(&c).await;
    let mut config = p.config();
    config.user("visitor");
    let visitor = common::connect_to(&config).await.expect("it logs in");
    for n in 1..=500u64 {
        let made_up = term + (n << 20);
        let (high, low) = (at.as_u64() >> 32, at.as_u64() as u32);
        let sql = format!("SET canon.min_token = '{cluster:032x}:{made_up}:{high:08X}/{low:08X}'");
        assert_eq!(refused(&visitor, &sql).await.0, "55000");
    }
    wait_for("it asks", async || counted(&http, asked) > before).await;
    leads(&c).await;
    assert!(!p.data_dir().join("CANON_HEARD").exists());
    // Not for each of them: once a second at most, and one node is known.
    assert!(counted(&http, asked) - before < 100);
}

/// The premise of a forced promotion was false: the old primary was up, and only cut off. It hears of the new term by itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_primary_hears_of_a_promotion_by_force() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (v int)").await;
    let r = replica(&p, "r").await;
    caught_up(&c, &r).await;
    signal(&p, "-STOP");
    promote(&r, &["--force", "--old-primary-is-down"]);
    let new = r.connect().await;
    leads(&new).await;
    signal(&p, "-CONT");
    wait_for("it hears of the new term", async || {
        one(&c, "SHOW transaction_read_only").await == "on"
    })
    .await;
    assert_eq!(refused(&c, "INSERT INTO t VALUES (7)").await.0, "25006");
    wait_for("it writes that down", async || {
        p.data_dir().join("CANON_HEARD").exists()
    })
    .await;
    // So it is after a start, too; and it has a way out when the new one is lost for good.
    drop(r);
    p.kill();
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(refused(&c, "INSERT INTO t VALUES (7)").await.0, "25006");
    let (code, message) = refused(&c, "SELECT canon_unseal()").await;
    assert_eq!(code, "55000");
    assert!(message.contains("a primary of a newer term"), "{message}");
    let said = promote(&p, &["--forget-term", "--newer-primary-is-down"]);
    assert!(said.contains("Leading again"), "{said}");
    let c = p.connect().await;
    leads(&c).await;
    p.kill();
    p.launch();
    p.ready().await;
    leads(&p.connect().await).await;
}

/// An old primary that was down during a forced promotion is told by the replica that it asks, before it serves.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_primary_that_starts_again_does_not_lead() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (v int)").await;
    let r = replica(&p, "r").await;
    caught_up(&c, &r).await;
    let listed = p.data_dir().join("CANON_NODES");
    wait_for("it knows the replica", async || listed.exists()).await;
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&listed.metadata().expect("rights").permissions());
    assert_eq!(mode & 0o777, 0o600);
    drop(c);
    p.kill();
    promote(&r, &["--force", "--old-primary-is-down"]);
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(refused(&c, "INSERT INTO t VALUES (7)").await.0, "25006");
    let said = std::fs::read_to_string(p.scratch().join("log")).expect("a log");
    assert!(said.contains("a replica follows a newer term"), "{said}");
}

/// A connection for terms: proven it is heard; of another secret, or another cluster, it changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_proof_deposes() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (v int)").await;
    let (cluster, term, _) = seen(&c).await;
    for (cluster, proof) in [
        (cluster, Proof::forged("a", term + 5)),
        (cluster ^ 1, Proof::member("a", term + 5)),
        (cluster, Proof::member("a", base::MAX_TERM + 1)),
    ] {
        let refused = RawPeer::connect(&p, "canon", "terms", cluster, &proof).err();
        assert!(refused.is_some());
        leads(&c).await;
    }
    // One without a history says nothing about this one's.
    let none = Proof::member("a", term + 5);
    assert!(RawPeer::connect(&p, "canon", "terms", 0, &none).is_ok());
    leads(&c).await;
    let same = Proof::member("a", term);
    let peer = RawPeer::connect(&p, "nobody at all", "terms", cluster, &same);
    let heard = peer.expect("the proof is the login").heard.expect("proven");
    assert_eq!((heard.cluster, heard.term), (cluster, term));
    leads(&c).await;
    let newer = Proof::member("a", term + 5);
    RawPeer::connect(&p, "canon", "terms", cluster, &newer).expect("let in");
    assert_eq!(one(&c, "SHOW transaction_read_only").await, "on");
    assert_eq!(refused(&c, "INSERT INTO t VALUES (1)").await.0, "25006");
}

/// What opens a door between nodes: the cluster's secret, for this cluster, on this connection. A login of a client opens none.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_node_of_this_cluster_proves_itself_and_only_once() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    let sql = "CREATE TABLE t (v int); CREATE ROLE visitor LOGIN";
    rows(&c, sql).await;
    let (cluster, term, _) = seen(&c).await;
    let member = Proof::member("a", term);
    let modes = ["control", "terms", "canon", "forward"];
    let mut heard = Vec::new();
    for mode in modes {
        let peer = RawPeer::connect(&p, "canon", mode, cluster, &member);
        heard.push(peer.expect("a node of the cluster").said);
    }
    for (mode, said) in modes.into_iter().zip(&heard) {
        // A client has no door of nodes, whichever its rights are. `canon` is the superuser's mode to read the log as a stranger.
        let clients = [("visitor", true), ("canon", mode != "canon")];
        for (user, closed) in clients {
            let client = RawPeer::connect(&p, user, mode, cluster, &Proof::None).err();
            assert_eq!(client.is_some(), closed, "{mode}, {user}: {client:?}");
        }
        for (who, cluster, proof) in [
            ("another secret", cluster, Proof::forged("a", term)),
            ("another cluster", cluster ^ 1, member.clone()),
        ] {
            let refused = RawPeer::connect(&p, "canon", mode, cluster, &proof).err();
            let (code, message) = refused.unwrap_or_else(|| panic!("{mode}: {who} is let in"));
            assert_eq!(code, "28000", "{mode}, {who}: {message}");
        }
        // A listener that has the whole exchange says the same again: each connection is asked anew.
        let refused = RawPeer::replay(&p, "canon", mode, "a", said).err();
        let (code, message) = refused.unwrap_or_else(|| panic!("{mode}: it is heard twice"));
        assert_eq!(code, "28000", "{mode}, said again: {message}");
        for other in modes.into_iter().filter(|other| *other != mode) {
            let refused = RawPeer::replay(&p, "canon", other, "a", said).err();
            assert!(refused.is_some(), "what was said for {mode} opens {other}");
        }
    }
    leads(&c).await;
}

/// Sessions have all places of a primary, and their commits wait for a replica that has to connect first.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_gets_the_log_of_a_primary_that_is_full() {
    if skip() {
        return;
    }
    let env = [
        ("CANON_MAX_CONNECTIONS", "8"),
        ("CANON_SYNCHRONOUS_REPLICAS", "1"),
    ];
    let p = Server::start_with(&env).await;
    let mut all = Vec::new();
    let full = loop {
        match common::connect_to(&p.config()).await {
            Ok(c) => all.push(c),
            Err(e) => break e,
        }
    };
    assert_eq!(common::sqlstate(&full), "53300");
    let _r = replica(&p, "r").await;
    let made = rows(&all[0], "CREATE TABLE t (id int PRIMARY KEY)");
    let made = tokio::time::timeout(PATIENCE, made).await;
    assert!(made.is_ok(), "{}", p.log_tail());
    let full = common::connect_to(&p.config()).await;
    let full = full.expect_err("others find no place");
    assert_eq!(common::sqlstate(&full), "53300");
}
