//! A primary and a replica in one process, without SQL and without a socket: a thread carries groups from one's `Shipping` to the
//! other's ring, as the server's connection does.

mod accounts;
mod schemas;

use accounts::{accounts, begin, define, handle, key, put, try_put};
use base::{CommitWait, Position, SqlState};
use commit::Acked;
use node::{Next, Node, NodeOptions, Role};
use replica::ship::Step;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use txn::{Access, Direction, Durability, Scan};

/// (id, v) in the order of the primary key, and what the index on v says, if there is one.
fn everything(node: &Node) -> (Vec<(i64, i64)>, Option<Vec<i64>>) {
    let mut t = begin(node, true, Durability::On);
    let h = handle(&t);
    let mut scan = |access| {
        let mut s = Scan::new(access, base::KeyRange::all(), Direction::Forward);
        let mut out = vec![];
        let mut each = |_: &[u8], r: base::RowRef<'_>| {
            out.push((r.get(0).as_i64().unwrap(), r.get(1).as_i64().unwrap()));
            Ok(())
        };
        while t.scan(&h, &mut s, 100, &mut each).unwrap() {}
        out
    };
    let rows = scan(Access::Primary);
    let by_v = h.indexes.len() > 1;
    let by_v = by_v.then(|| scan(Access::Index(1)).iter().map(|r| r.1).collect());
    (rows, by_v)
}

fn transfer(node: &Node, n: i64, accounts: i64, durability: Durability) -> CommitWait {
    let mut t = begin(node, false, durability);
    let h = handle(&t);
    let (a, b) = (n % accounts, (n * 7 + 1) % accounts);
    let mut v = |id| {
        t.get(&h, &key(id), |r| r.get(1).as_i64().unwrap())
            .unwrap()
            .unwrap()
    };
    let (x, y) = (v(a), v(b));
    if a != b {
        put(&mut t, a, x - 1);
        put(&mut t, b, y + 1);
    }
    node.commit(t).unwrap()
}

/// Carries what the primary ships to the replica until dropped.
struct Link {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Link {
    fn new(primary: &Arc<Node>, replica: &Arc<Node>) -> Link {
        let stop = Arc::new(AtomicBool::new(false));
        let (primary, replica, stopped) = (primary.clone(), replica.clone(), stop.clone());
        let thread = std::thread::spawn(move || carry(&primary, &replica, &stopped));
        Link {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn carry(primary: &Node, replica: &Node, stop: &AtomicBool) {
    let following = replica.following().unwrap();
    let mut ring = following.take_ring().unwrap();
    let mut sent = following.marks.received.get();
    let shipping = primary.shipping();
    let name = format!("replica {:?}", std::thread::current().id());
    let id = shipping.join(&name, true, "", sent, 0);
    while !stop.load(Ordering::SeqCst) {
        let step = |after, upto| Step {
            term: primary.term(),
            stream: primary.cluster(),
            after,
            upto,
            published: primary.marks().published.get(),
            sent_micros: 1,
        };
        let flushed = primary.marks().flushed.get();
        let mut frame = vec![];
        match shipping.after(sent) {
            Next::Groups(groups) => {
                for g in groups {
                    frame.clear();
                    step(sent, g.upto).encode_batch(g.group.as_bytes(), &mut frame);
                    ring.write(&frame);
                    sent = g.upto;
                }
            }
            Next::Behind => {
                let mut log = primary.read_log(sent).unwrap().unwrap();
                while let Some(g) = log.next_group().unwrap() {
                    let upto = g.header().last;
                    frame.clear();
                    step(sent, upto).encode_batch(g.as_bytes(), &mut frame);
                    ring.write(&frame);
                    sent = upto;
                }
                sent = sent.max(flushed);
                frame.clear();
                step(sent, sent).encode_tick(&mut frame);
                ring.write(&frame);
            }
            Next::Nothing => {
                let upto = flushed.max(sent);
                step(sent, upto).encode_tick(&mut frame);
                ring.write(&frame);
                sent = upto;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if following.take_overrun() {
            sent = following.marks.received.get();
            ring.restart();
        }
        // As a receiver does that hears of it without a batch, while the follower is at work.
        following.published(primary.term(), primary.marks().published.get());
        let m = &following.marks;
        let acked = Acked {
            term: primary.term(),
            received: m.received.get(),
            persisted: m.persisted.get(),
            visible: m.visible.get(),
        };
        shipping.acked(id, acked, 1, 1, 1);
        assert_eq!(following.failure().map(|e| e.to_string()), None);
        m.check();
    }
    shipping.leave(id);
    following.return_ring(ring);
}

fn primary_at(path: &Path, synchronous_replicas: usize) -> Arc<Node> {
    let options = NodeOptions {
        segment_bytes: 1 << 20,
        synchronous_replicas,
        ..NodeOptions::default()
    };
    Arc::new(Node::open(path, options).unwrap())
}

fn replica_at(path: &Path) -> Arc<Node> {
    let options = NodeOptions {
        segment_bytes: 1 << 20,
        replica: true,
        ..NodeOptions::default()
    };
    Arc::new(Node::open(path, options).unwrap())
}

/// A stopped node's directory, again under another name.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &name);
        } else {
            std::fs::copy(entry.path(), name).unwrap();
        }
    }
}

fn seed(path: &Path, rows: i64) {
    let node = primary_at(path, 0);
    define(&node, accounts(false));
    let mut t = begin(&node, false, Durability::On);
    (0..rows).for_each(|id| put(&mut t, id, 100));
    let held = node.commit(t).unwrap();
    futures::executor::block_on(node.published(held));
    node.checkpoint().unwrap();
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "waited for ever until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn caught_up(primary: &Node, replica: &Node) {
    let to = primary.marks().installed.get();
    futures::executor::block_on(primary.published(to));
    wait("the replica has caught up", || {
        replica.marks().published.get() >= to
    });
}

/// Nothing of it has come, and the older one answers reads no more.
#[test]
fn a_newer_term_counts_from_its_first_word() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    seed(a.path(), 1);
    copy(a.path(), b.path());
    let replica = replica_at(b.path());
    let following = replica.following().unwrap();
    let term = replica.term();
    assert_eq!(following.followed(), term);
    following.published(term, Position::ZERO);
    following.published(term + 3, Position::ZERO);
    assert_eq!(following.followed(), term + 3);
    following.published(term + 1, Position::ZERO);
    assert_eq!(following.followed(), term + 3);
    assert_eq!(following.term(), 1, "of what has been taken");
}

/// It was heard of in an earlier life, and whether its history is this one is not known.
#[test]
fn a_term_that_was_heard_of_and_not_followed_leaves_nobody_to_ask() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    seed(a.path(), 1);
    copy(a.path(), b.path());
    let replica = replica_at(b.path());
    let term = replica.term();
    replica.dir().hear(term + 9).unwrap();
    drop(replica);
    let replica = replica_at(b.path());
    let following = replica.following().unwrap();
    assert_eq!(following.followed(), 0);
    following.published(term, Position::ZERO);
    assert_eq!(following.followed(), 0, "an older one, which is still up");
    following.published(term + 9, Position::ZERO);
    assert_eq!(following.followed(), term + 9);
    following.heard_of(term + 10);
    assert_eq!(following.followed(), 0);
}

#[test]
fn a_replica_shows_prefixes_and_ends_up_equal_and_can_be_promoted() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    const N: i64 = 50;
    seed(a.path(), N);
    copy(a.path(), b.path());
    let (primary, replica) = (primary_at(a.path(), 0), replica_at(b.path()));
    assert_eq!(
        (primary.role(), replica.role()),
        (Role::Primary, Role::Replica)
    );
    let link = Link::new(&primary, &replica);
    futures::executor::block_on(replica.opened());
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut last = Position::ZERO;
                while !done.load(Ordering::SeqCst) {
                    let (rows, by_v) = everything(&replica);
                    let total: i64 = rows.iter().map(|r| r.1).sum();
                    assert_eq!((rows.len() as i64, total), (N, N * 100), "not a prefix");
                    if let Some(by_v) = by_v {
                        assert!(
                            by_v.is_sorted() && by_v.len() as i64 == N,
                            "index: {by_v:?}"
                        );
                    }
                    let now = replica.marks().published.get();
                    assert!(now >= last, "what was shown is taken back");
                    last = now;
                }
            });
        }
        for n in 0..3000 {
            let level = [Durability::On, Durability::Off][n as usize % 2];
            let held = transfer(&primary, n, N, level);
            if n % 100 == 0 {
                futures::executor::block_on(primary.published(held));
            }
            if n == 1500 {
                define(&primary, accounts(true));
            }
        }
        caught_up(&primary, &replica);
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(everything(&primary), everything(&replica));
    assert!(everything(&replica).1.is_some(), "the index came along");
    let mut t = begin(&replica, false, Durability::On);
    let refused = try_put(&mut t, 1, 1).unwrap_err();
    assert_eq!(
        refused.error().expect("an error").code(),
        SqlState::READ_ONLY_SQL_TRANSACTION
    );

    // A planned switch-over: the primary seals, the replica has its last position, and goes on.
    let last = primary.seal().unwrap();
    caught_up(&primary, &replica);
    drop(link);
    let promoted = replica.promote().unwrap();
    assert!(promoted.term > 1 && promoted.start >= last);
    assert_eq!(replica.role(), Role::Primary);
    let held = transfer(&replica, 1, N, Durability::On);
    futures::executor::block_on(replica.published(held));
    let mut t = begin(&primary, false, Durability::On);
    let refused = try_put(&mut t, 1, 1).unwrap_err();
    assert_eq!(
        refused.error().expect("an error").code(),
        SqlState::READ_ONLY_SQL_TRANSACTION
    );
    let now = everything(&replica);
    drop((primary, replica));
    let again = primary_at(b.path(), 0);
    assert_eq!((everything(&again), again.term()), (now, promoted.term));
}

/// Whoever hears of a term makes way for it: one that does not begin after all leaves no trace.
#[test]
fn a_promotion_that_fails_leaves_no_term() {
    let mem = env::MemDisk::new();
    let disk = env::FaultyDisk::new(Arc::new(mem.clone()));
    let open = |replica| {
        let options = NodeOptions {
            env: env::Env::os().with_disk(Arc::new(disk.clone())),
            replica,
            ..NodeOptions::default()
        };
        Node::open(Path::new("/n"), options).unwrap()
    };
    drop(open(false));
    let node = open(true);
    let terms = node.terms();
    // Once: it has the term in its place by then.
    let failed = AtomicBool::new(false);
    disk.refuse(move |op, path| {
        let this = op == env::faulty_disk::Op::SyncDir && path == Path::new("/n");
        this && !failed.swap(true, Ordering::SeqCst)
    });
    node.promote().unwrap_err();
    assert_eq!((node.role(), node.term()), (Role::Replica, 1));
    drop(node);
    let node = open(true);
    assert_eq!((node.terms(), node.heard_term()), (terms, 1));
    let promoted = node.promote().unwrap();
    assert_eq!(node.terms().last(), Some(&(promoted.term, promoted.start)));
}

#[test]
fn a_replica_that_was_away_resumes_from_its_own_log() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    seed(a.path(), 20);
    copy(a.path(), b.path());
    let primary = primary_at(a.path(), 0);
    for round in 0..4 {
        let replica = replica_at(b.path());
        let link = Link::new(&primary, &replica);
        for n in 0..200 {
            transfer(&primary, round * 1000 + n, 20, Durability::On);
        }
        caught_up(&primary, &replica);
        assert_eq!(everything(&primary), everything(&replica));
        if round == 1 {
            replica.checkpoint().unwrap();
        }
        drop(link);
        // While it is away.
        for n in 0..50 {
            transfer(&primary, n, 20, Durability::On);
        }
    }
}

#[test]
fn a_commit_is_acknowledged_when_its_level_is_reached() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    seed(a.path(), 20);
    copy(a.path(), b.path());
    let primary = primary_at(a.path(), 1);
    {
        let replica = replica_at(b.path());
        let _link = Link::new(&primary, &replica);
        futures::executor::block_on(primary.opened());
    }
    let released = |held| primary.is_published(held);
    let local = transfer(&primary, 1, 20, Durability::Local);
    wait("a local commit is flushed", || released(local));
    let on = transfer(&primary, 2, 20, Durability::On);
    let write = transfer(&primary, 3, 20, Durability::RemoteWrite);
    let apply = transfer(&primary, 4, 20, Durability::RemoteApply);
    let flushed = || primary.marks().flushed.get() >= apply.position();
    wait("all of them are flushed", flushed);
    assert!(
        !released(on) && !released(write) && !released(apply),
        "there is no replica yet"
    );
    let replica = replica_at(b.path());
    let _link = Link::new(&primary, &replica);
    for held in [on, write, apply] {
        futures::executor::block_on(primary.published(held));
    }
    assert!(replica.marks().published.get() >= apply.position());
}

#[test]
fn what_a_start_finds_is_shown_when_the_policy_holds_for_it() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    const N: i64 = 20;
    seed(dirs[0].path(), N);
    for d in &dirs[1..] {
        copy(dirs[0].path(), d.path());
    }
    // Two replicas must have it: one is not enough, and neither node shows anything until then.
    let primary = primary_at(dirs[0].path(), 2);
    let (one, two) = (replica_at(dirs[1].path()), replica_at(dirs[2].path()));
    let _first = Link::new(&primary, &one);
    let ends = primary.recovered_end();
    wait("the first replica has acknowledged", || {
        let all = primary.shipping().followers();
        all.iter().any(|f| f.acked.persisted >= ends)
    });
    for node in [&primary, &one] {
        assert!(!node.is_open());
        assert_eq!(node.marks().published.get(), Position::ZERO);
        // Whoever is let in all the same sees what there is.
        assert_eq!(everything(node).0.len() as i64, N);
    }
    let mut t = begin(&primary, false, Durability::Local);
    put(&mut t, 1, 1);
    let refused = primary.commit(t).unwrap_err();
    assert_eq!(refused.code(), SqlState::CANNOT_CONNECT_NOW);
    // A checkpoint holds what is on this disk, decided or not: a new replica can be made from it.
    primary.checkpoint().unwrap();
    let newest = primary.dir().latest_checkpoint().unwrap().unwrap();
    assert_eq!(newest.manifest().start, ends);
    assert_eq!(newest.manifest().rows, N as u64);

    let _second = Link::new(&primary, &two);
    for node in [&primary, &one, &two] {
        futures::executor::block_on(node.opened());
        assert_eq!(everything(node).0.len() as i64, N);
    }
    // A replica alone, after a start: only where one replica is enough may it show its log unasked.
    drop((_first, _second));
    drop((primary, one));
    let one = replica_at(dirs[1].path());
    assert!(!one.is_open());
    // Promoted, it still waits for the others.
    drop(one);
    let options = NodeOptions {
        replica: true,
        synchronous_replicas: 1,
        ..NodeOptions::default()
    };
    let one = Arc::new(Node::open(dirs[1].path(), options).unwrap());
    one.promote().unwrap();
    assert!(!one.is_open());
    let _link = Link::new(&one, &two);
    futures::executor::block_on(one.opened());
    assert_eq!(everything(&one).0.len() as i64, N);
}

/// Nobody else may have what a node wrote when it led: where a replica must have a commit, it shows that to nobody before it is known.
#[test]
fn an_old_primary_does_not_show_what_may_be_its_own_alone() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    seed(a.path(), 3);
    copy(a.path(), b.path());
    let as_replica = |path: &Path, synchronous_replicas| {
        let options = NodeOptions {
            replica: true,
            synchronous_replicas,
            ..NodeOptions::default()
        };
        Arc::new(Node::open(path, options).unwrap())
    };
    // Its replica has a part of it.
    let primary = primary_at(a.path(), 1);
    let replica = replica_at(b.path());
    let link = Link::new(&primary, &replica);
    futures::executor::block_on(primary.opened());
    // As whoever connects it says when their histories agree.
    replica.dir().follow().unwrap();
    drop(link);
    let mut t = begin(&primary, false, Durability::Local);
    put(&mut t, 1, 77);
    let held = primary.commit(t).unwrap();
    futures::executor::block_on(primary.published(CommitWait::Flushed(held.position())));
    drop((primary, replica));

    let old = as_replica(a.path(), 1);
    assert!(!old.show_own_log());
    assert!(!old.is_open());
    drop(old);
    // Where no replica is asked for, it is decided.
    let old = as_replica(a.path(), 0);
    assert!(old.show_own_log());
    futures::executor::block_on(old.opened());
    // The replica had all of its primary.
    let replica = as_replica(b.path(), 1);
    assert!(replica.show_own_log());
    futures::executor::block_on(replica.opened());
    drop(replica);
    let replica = as_replica(b.path(), 2);
    assert!(!replica.show_own_log());
    // Promoted and started as a replica again, it has led.
    replica.promote().unwrap();
    drop(replica);
    assert!(!as_replica(b.path(), 1).show_own_log());
}
