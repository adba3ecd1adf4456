//! A node that is demoted, promoted and started in one process, again and again: nothing of it stays. And several nodes of a process in one house.

mod accounts;
mod schemas;

use accounts::{accounts, begin, define, handle, key, put, try_put};
use base::SqlState;
use node::{Ended, House, Node, NodeOptions, Role};
use replica::replay::ReplayOptions;
use std::alloc::System;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Metered;
use txn::{Durability, Isolation, TxnOptions};

#[global_allocator]
static ALLOCATOR: Metered<System> = Metered(System);

/// Tests of this process count its threads and its memory.
static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

const ROWS: i64 = 2_000;
const TIMES: usize = 50;
/// Bytes for the rows of all nodes of a house.
const LIMIT: u64 = 4 << 20;
/// Rows of a transaction.
const ROWS_EACH: usize = 100;

fn options() -> NodeOptions {
    NodeOptions {
        segment_bytes: 1 << 20,
        ring_bytes: 1 << 20,
        recent_bytes: 1 << 20,
        recovery_workers: 1,
        replay: ReplayOptions {
            workers: 2,
            ..ReplayOptions::default()
        },
        ..NodeOptions::default()
    }
}

fn entries(path: &str) -> usize {
    std::fs::read_dir(path).expect("Linux says so").count()
}

/// Names of this process's threads, but for those of the tests, which begin and end when they like. A thread that has just begun has its maker's name.
fn threads() -> Vec<String> {
    let main = std::fs::read_to_string("/proc/self/comm").expect("Linux says so");
    let all = std::fs::read_dir("/proc/self/task").expect("Linux says so");
    let name = |e: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(e.ok()?.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    };
    let of_a_test =
        |name: &String| name == main.trim() || name.starts_with("a_") || name.starts_with("nodes_");
    all.filter_map(name).filter(|n| !of_a_test(n)).collect()
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "waited for ever until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn sum(node: &Node) -> i64 {
    let mut t = begin(node, true, Durability::On);
    let h = handle(&t);
    let mut v = |id| t.get(&h, &key(id), |r| r.get(1).as_i64()).expect("read");
    (0..ROWS).filter_map(&mut v).flatten().sum()
}

fn add_one(node: &Node) {
    let mut t = begin(node, false, Durability::On);
    (0..ROWS).for_each(|id| {
        let h = handle(&t);
        let v = t.get(&h, &key(id), |r| r.get(1).as_i64()).expect("read");
        put(&mut t, id, v.flatten().unwrap_or(0) + 1);
    });
    let held = node.commit(t).expect("committed");
    node.flush_here(true);
    futures::executor::block_on(node.published(held));
}

fn end(node: Node) -> Ended {
    match Arc::new(node).end() {
        Ok(ended) => ended,
        Err(_) => panic!("nothing else has the node"),
    }
}

/// (threads, open files, bytes) of this process, once memory that waits for the end of old readers is given back.
fn taken() -> (usize, usize, i64) {
    for _ in 0..1_000 {
        store::pin().flush();
    }
    base::memory::flush();
    (
        threads().len(),
        entries("/proc/self/fd"),
        base::memory::process(),
    )
}

#[test]
fn a_node_that_is_demoted_and_promoted_in_its_process_leaves_nothing() {
    let _alone = ONE_AT_A_TIME.lock();
    let scratch = tempfile::tempdir().expect("a directory");
    let node = Node::open(scratch.path(), options()).expect("a new database");
    define(&node, accounts(true));
    add_one(&node);
    let mut ended = end(node);
    let mut first = None;
    for n in 1..=TIMES {
        let at = ended.last;
        let node = ended.start(true).expect("it follows");
        assert_eq!((node.role(), node.recovered_end()), (Role::Replica, at));
        let term = node.promote().expect("it leads").term;
        assert_eq!(sum(&node), ROWS * n as i64);
        add_one(&node);
        if n % 10 == 0 {
            node.checkpoint().expect("a checkpoint");
        }
        assert_eq!(node.term(), term);
        ended = end(node);
        let (threads, files, bytes) = taken();
        // The first rounds fill what a process keeps: buffers, tables of threads.
        if n == 10 {
            first = Some((threads, files, bytes));
        }
        if let Some((t, f, b)) = first {
            assert_eq!((threads, files), (t, f), "after {n} times");
            assert!(bytes < b + (8 << 20), "{b} bytes, {bytes} after {n} times");
        }
    }
}

#[test]
fn a_node_that_is_in_use_is_stopped_and_ends_later() {
    let _alone = ONE_AT_A_TIME.lock();
    let scratch = tempfile::tempdir().expect("a directory");
    let node = Arc::new(Node::open(scratch.path(), options()).expect("a new database"));
    let session = node.clone();
    let Err(node) = node.end() else {
        panic!("a session has it");
    };
    let refused = Node::open(scratch.path(), options()).err();
    let refused = refused.expect("its directory is locked");
    assert_eq!(refused.code(), SqlState::OBJECT_IN_USE);
    drop(session);
    let ended = node.end().ok().expect("nothing has it any more");
    ended.start(false).expect("it leads again");
}

/// Its connection was lost with the primary's process, say, and it goes on at the primary that was started again.
#[test]
fn a_transaction_that_moves_does_not_stand_below_the_start_of_its_primary() {
    let _alone = ONE_AT_A_TIME.lock();
    let scratch = tempfile::tempdir().expect("a directory");
    let node = Node::open(scratch.path(), options()).expect("a new database");
    define(&node, accounts(false));
    add_one(&node);
    let read_at = node.marks().published.get();
    // Every row is written again: the start finds the newest versions only.
    add_one(&node);
    let node = end(node).start(false).expect("it leads again");
    assert!(read_at < node.recovered_end());
    let options = TxnOptions {
        isolation: Isolation::RepeatableRead,
        ..TxnOptions::default()
    };
    let mut t = node.begin(options, false);
    let moved = base::Footprint {
        snapshot: read_at,
        ..base::Footprint::default()
    };
    t.adopt_reads(&moved)
        .expect("it has read nothing that changed");
    assert!(t.snapshot() >= Some(node.recovered_end()));
    t.begin_statement().expect("a statement");
    let h = handle(&t);
    let v = t.get(&h, &key(7), |r| r.get(1).as_i64()).expect("read");
    assert_eq!(v.flatten(), Some(2), "the row is not there");
}

#[test]
fn nodes_of_a_house_share_its_threads_and_its_limit() {
    let _alone = ONE_AT_A_TIME.lock();
    let before = threads().len();
    let house = House::new(&env::Env::os(), LIMIT).expect("a house");
    let open = |path: &Path| {
        let options = NodeOptions {
            house: Some(house.clone()),
            ..options()
        };
        Node::open(path, options).expect("a new database")
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let mut nodes: Vec<Node> = (0..3)
        .map(|n| open(&scratch.path().join(format!("node-{n}"))))
        .collect();
    assert_eq!(house.nodes(), 3);
    // A primary has one thread of its own, which writes its log.
    let expected = before + house.threads() + nodes.len();
    wait("one thread writes each log", || threads().len() == expected);
    for node in &nodes {
        define(node, accounts(false));
    }
    // Each node takes a third of the limit and more; the one that comes last is refused, and all are.
    let mut rows = [0; 3];
    let mut refused = None;
    for first in (0..1_000_000).step_by(ROWS_EACH) {
        let n = first / ROWS_EACH % 3;
        let mut t = begin(&nodes[n], false, Durability::Off);
        let put = (first..first + ROWS_EACH).try_for_each(|id| try_put(&mut t, id as i64, 1));
        if let Err(e) = put {
            refused = Some(e.to_string());
            break;
        }
        nodes[n].commit(t).expect("committed");
        rows[n] += ROWS_EACH;
    }
    let refused = refused.expect("the limit is reached");
    assert!(refused.contains("out of memory"), "{refused}");
    assert!(rows.iter().all(|n| *n > 1_000), "{rows:?}");
    let used = house.memory().expect("it has a limit").used();
    // The one that was refused has given back what it had.
    assert!(used > LIMIT / 10 * 9, "{used}");
    let each: Vec<u64> = nodes
        .iter()
        .map(|n| n.manager().store.memory.used())
        .collect();
    assert!(each.iter().all(|n| *n < used / 2), "{each:?}");
    // A node that ends gives its part back, and the others go on.
    end(nodes.pop().expect("three"));
    for _ in 0..1_000 {
        store::pin().flush();
    }
    wait("its memory is back", || {
        let mut t = begin(&nodes[0], false, Durability::Off);
        try_put(&mut t, 2_000_000, 1).is_ok() && nodes[0].commit(t).is_ok()
    });
    // Housework goes on for the two that are left.
    for node in &nodes {
        node.checkpoint().expect("a checkpoint");
        assert!(node.checkpoints() > 0);
    }
    nodes.into_iter().for_each(|n| drop(end(n)));
    assert_eq!(house.nodes(), 0);
    drop(house);
    wait("the threads have ended", || threads().len() == before);
}
