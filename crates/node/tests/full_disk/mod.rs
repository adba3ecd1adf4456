//! What a node does on a full disk, and how it stops there.

use super::*;
use base::CommitWait;
use env::faulty_disk::Op;
use env::{FaultyDisk, MemDisk};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A node on a disk in memory whose room can be set, with its one table; small segments, and no checkpoint by itself.
fn on_faulty_disk(mem: &MemDisk) -> (FaultyDisk, Arc<Node>, Arc<TableHandle>) {
    let disk = FaultyDisk::new(Arc::new(mem.clone()));
    let options = NodeOptions {
        env: env::Env::os().with_disk(Arc::new(disk.clone())),
        segment_bytes: 1 << 16,
        wal_keep_bytes: 0,
        ..NodeOptions::default()
    };
    let node = Arc::new(Node::open(Path::new("/n"), options).unwrap());
    if node.report().created {
        define(&node, sample(20000));
    }
    let h = handle(&node, 20000);
    (disk, node, h)
}

/// Waits on a condition.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A commit that finds no room on the disk. What its reply waits for.
fn commit_on_a_full_disk(node: &Node, h: &TableHandle, id: i64) -> CommitWait {
    let mut t = begin(node, Isolation::Serializable, true);
    t.insert(h, &row(id, 10)).unwrap();
    let held = node.commit(t).unwrap();
    let full = &node.flush_stats().disk_full;
    until("the disk is never full", || full.load(Relaxed) > 0);
    held
}

/// Runs it in a thread and waits for its end.
fn ends<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let t = std::thread::spawn(f);
    until(what, || t.is_finished());
    t.join().unwrap()
}

/// A node that stops on a full disk gives up what waits for room, and says so; all that was acknowledged is there after a start.
#[test]
fn a_full_disk_does_not_keep_a_node_from_stopping() {
    let mem = MemDisk::new();
    let (disk, node, h) = on_faulty_disk(&mem);
    change_one(&node, &h, 1);
    disk.set_room(Some(0));
    let held = commit_on_a_full_disk(&node, &h, 2);
    // A hand-over waits for the disk, too, and is told.
    let n = node.clone();
    let seals = std::thread::spawn(move || n.seal());
    until("it hands over", || node.role() == node::Role::Sealed);
    let refused = node.manager().check_accepts_writes().unwrap_err();
    assert_eq!(refused.code(), SqlState::READ_ONLY_SQL_TRANSACTION);
    let n = node.clone();
    ends("it does not stop", move || n.stop());
    assert!(!node.is_published(held), "acknowledged on a full disk");
    let given_up = &node.flush_stats().given_up;
    assert_eq!(given_up.load(Relaxed), 1);
    let sealed = ends("the hand-over waits", move || seals.join().unwrap());
    assert_eq!(sealed.unwrap_err().code(), SqlState::ADMIN_SHUTDOWN);
    drop(node);
    disk.set_room(None);
    let (_, node, h) = on_faulty_disk(&mem);
    let mut t = begin(&node, Isolation::Serializable, true);
    assert_eq!(value(&mut t, &h, 1), Some(10));
    assert_eq!(value(&mut t, &h, 2), None);
}

/// One row, committed and durable.
fn change_one(node: &Node, h: &TableHandle, id: i64) {
    let mut t = begin(node, Isolation::Serializable, true);
    t.insert(h, &row(id, 10)).unwrap();
    let held = node.commit(t).unwrap();
    futures::executor::block_on(node.published(held));
}

/// Whoever stops a node waits for a batch of its checkpoint, not for all of it; nothing is left of it, and nobody is told that it was written.
#[test]
fn a_checkpoint_ends_when_it_is_told_to() {
    let (_dir, node, _) = with_rows(5000);
    let asked = std::cell::Cell::new(0);
    let check_cancelled = || {
        asked.set(asked.get() + 1);
        match asked.get() {
            3 => Err(base::Error::new(SqlState::ADMIN_SHUTDOWN, "enough")),
            _ => Ok(()),
        }
    };
    let sequences = node::sequences::Sequences::default();
    let (dir, keep) = (node.dir(), Position::MAX);
    let written = node::checkpoint::write(
        dir,
        node.manager(),
        &sequences,
        keep,
        |_| Ok(()),
        check_cancelled,
    );
    assert_eq!(written.unwrap_err().code(), SqlState::ADMIN_SHUTDOWN);
    assert_eq!(asked.get(), 3);
    assert!(dir.latest_checkpoint().unwrap().is_none());
    node.stop();
    let refused = node.checkpoint().unwrap_err();
    assert_eq!(refused.code(), SqlState::ADMIN_SHUTDOWN);
}

/// While commits wait for room, a transaction that only reads stands at what is published, and its end waits for nothing.
#[test]
fn who_reads_does_not_wait_for_room_on_the_disk() {
    let (disk, node, h) = on_faulty_disk(&MemDisk::new());
    change_one(&node, &h, 1);
    disk.set_room(Some(0));
    let held = commit_on_a_full_disk(&node, &h, 2);
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let mut t = begin(&node, isolation, true);
        for _ in 0..2 {
            assert_eq!(value(&mut t, &h, 1), Some(10));
            assert_eq!(value(&mut t, &h, 2), None, "{isolation:?}");
            t.begin_statement().unwrap();
        }
        let refused = t.insert(&h, &row(3, 10)).unwrap_err();
        assert_eq!(
            refused.error().expect("an error").code(),
            SqlState::DISK_FULL
        );
        let read = node.commit(t).unwrap();
        assert!(node.is_published(read), "{isolation:?}: {read:?}");
    }
    // One that began then may write when there is room, and finds what it did not see.
    let mut early = begin(&node, Isolation::Serializable, true);
    assert_eq!(value(&mut early, &h, 2), None);
    disk.set_room(None);
    futures::executor::block_on(node.published(held));
    let mut t = begin(&node, Isolation::Serializable, true);
    assert_eq!(value(&mut t, &h, 2), Some(10));
    until("writes are refused still", || {
        early.insert(&h, &row(3, 10)).is_ok()
    });
    let lost = node.commit(early).unwrap_err();
    assert_eq!(lost.code(), SqlState::SERIALIZATION_FAILURE);
}

/// Rewrites a row of some KiB, so that the log grows, and waits until it is durable.
fn grow_the_log(node: &Node, h: &TableHandle, v: i64) {
    let mut t = begin(node, Isolation::Serializable, true);
    let long = format!("{v:04000}");
    let new = vec![Value::Int8(1), Value::Int8(v), Value::from(long)];
    t.update(h, &key(1), &new).unwrap();
    let held = node.commit(t).unwrap();
    until("it waits for room", || node.is_published(held));
}

fn segments(node: &Node) -> usize {
    node.dir().log().list().unwrap().len()
}

/// Where there is no room for a segment of the log, a checkpoint is written, the log before it goes, and its segments are used again. Where
/// there is none for a checkpoint either, log goes that a replica needed which does not follow any more.
#[test]
fn a_full_disk_makes_room_for_itself() {
    let (disk, node, h) = on_faulty_disk(&MemDisk::new());
    change_one(&node, &h, 1);
    for v in 0..50 {
        grow_the_log(&node, &h, v);
    }
    assert!(segments(&node) >= 3 && node.checkpoints() == 0);
    disk.refuse(opens_a_segment);
    for v in 0..100 {
        grow_the_log(&node, &h, v);
    }
    let full = || node.flush_stats().disk_full.load(Relaxed);
    assert!(full() > 0 && node.checkpoints() > 0);

    let shipping = node.shipping();
    let needs = node.marks().flushed.get();
    let follower = shipping.join("away", true, "", needs, 0);
    let acked = commit::Acked {
        term: node.term(),
        received: needs,
        persisted: needs,
        visible: needs,
    };
    shipping.acked(follower, acked, 0, 0, 0);
    disk.refuse(|_, _| false);
    for v in 0..50 {
        grow_the_log(&node, &h, v);
    }
    node.checkpoint().unwrap();
    let kept = segments(&node);
    assert!(kept >= 3, "the replica needs them");
    disk.refuse(move |op, p| {
        op == Op::Open && (p.starts_with("/n/checkpoint") || opens_a_segment(op, p))
    });
    let before = full();
    let n = node.clone();
    let writes = std::thread::spawn(move || {
        for v in 0.. {
            grow_the_log(&n, &h, v);
            if n.flush_stats().disk_full.load(Relaxed) > before {
                return;
            }
        }
    });
    until("there is room", || full() > before);
    let written = node.checkpoints();
    shipping.leave(follower);
    ends("it waits for room", move || writes.join().unwrap());
    assert_eq!(node.checkpoints(), written);
}

/// A commit that needs a segment of its own, which no spare is.
fn commit_much(node: &Node, h: &TableHandle) -> CommitWait {
    let mut t = begin(node, Isolation::Serializable, true);
    for id in 100..120 {
        let long = Value::from(format!("{id:04000}"));
        t.insert(h, &[Value::Int8(id), Value::Int8(id), long])
            .unwrap();
    }
    node.commit(t).unwrap()
}

fn opens_a_segment(op: Op, p: &Path) -> bool {
    op == Op::Open && p.starts_with("/n/wal") && p.extension().is_some_and(|e| e == "tmp")
}

/// So does one that is started on a full disk, whose first commit finds no room.
#[test]
fn a_start_on_a_full_disk_makes_room_for_itself() {
    let mem = MemDisk::new();
    let (_, node, h) = on_faulty_disk(&mem);
    change_one(&node, &h, 1);
    drop((node, h));
    let (disk, node, h) = on_faulty_disk(&mem);
    disk.refuse(opens_a_segment);
    let held = commit_much(&node, &h);
    until("no checkpoint is tried", || node.checkpoints() > 0);
    assert!(!node.is_published(held));
    disk.refuse(|_, _| false);
    until("it waits for room", || node.is_published(held));
}

/// A commit that waits because the log does not keep up can be cancelled, and is told when the disk becomes full meanwhile.
#[test]
fn who_waits_for_the_log_is_told_when_it_is_in_vain() {
    let (disk, node, h) = on_faulty_disk(&MemDisk::new());
    let (held, full) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let (hold, is_full) = (held.clone(), full.clone());
    disk.refuse(move |op, p| {
        let this = op == Op::Write && p.starts_with("/n/wal");
        while this && hold.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        this && is_full.load(SeqCst)
    });
    let interrupt = Arc::new(txn::Interrupt::default());
    let commits = Arc::new(AtomicU64::new(0));
    let writer = |from: i64| {
        let (node, h, commits) = (node.clone(), h.clone(), commits.clone());
        let options = TxnOptions {
            interrupt: interrupt.clone(),
            ..TxnOptions::default()
        };
        std::thread::spawn(move || {
            for id in from.. {
                let mut t = node.begin(options.clone(), false);
                let done = t
                    .begin_statement()
                    .and_then(|()| t.insert(&h, &row(id, 10)).map_err(txn::Stop::only_error));
                if let Err(e) = done.and_then(|()| node.commit(t)) {
                    return e.code();
                }
                commits.fetch_add(1, SeqCst);
            }
            unreachable!("it goes on")
        })
    };
    let ended = |t: std::thread::JoinHandle<SqlState>| ends("it waits", move || t.join().unwrap());
    let first = writer(1);
    until("the log takes all", || commits.load(SeqCst) >= 8192);
    interrupt.0.store(txn::Interrupt::CANCEL, SeqCst);
    assert_eq!(ended(first), SqlState::QUERY_CANCELED);
    interrupt.0.store(txn::Interrupt::NONE, SeqCst);
    let second = writer(1 << 20);
    full.store(true, SeqCst);
    held.store(false, SeqCst);
    assert_eq!(ended(second), SqlState::DISK_FULL);
    disk.refuse(|_, _| false);
    let accepts = || node.manager().check_accepts_writes().is_ok();
    until("there is room", accepts);
}

/// What waits for room when the node stops is given up only after some more tries.
#[test]
fn a_node_that_stops_does_not_give_up_at_once() {
    let mem = MemDisk::new();
    let (disk, node, h) = on_faulty_disk(&mem);
    change_one(&node, &h, 1);
    let stops = Arc::new(AtomicBool::new(false));
    let (told, tries) = (stops.clone(), AtomicU64::new(0));
    disk.refuse(move |op, p| {
        let full = || !told.load(SeqCst) || tries.fetch_add(1, SeqCst) < 10;
        op == Op::Open && p.starts_with("/n/checkpoint") || opens_a_segment(op, p) && full()
    });
    let held = commit_much(&node, &h);
    let full = || node.flush_stats().disk_full.load(Relaxed);
    until("the disk is never full", || full() > 0);
    let n = node.clone();
    let stopping = std::thread::spawn(move || n.stop());
    let ends_soon = || {
        let refused = node.manager().check_accepts_writes().err();
        refused.is_some_and(|e| e.code() == SqlState::ADMIN_SHUTDOWN)
    };
    until("it does not stop", ends_soon);
    stops.store(true, SeqCst);
    ends("it does not stop", move || stopping.join().unwrap());
    assert_eq!(node.flush_stats().given_up.load(Relaxed), 0);
    assert!(node.is_published(held));
    drop((node, h));
    let (_, node, h) = on_faulty_disk(&mem);
    let mut t = begin(&node, Isolation::Serializable, true);
    assert_eq!(value(&mut t, &h, 119), Some(119));
}

/// While a checkpoint is written, which may take long, segments are made ready for the log.
#[test]
fn a_checkpoint_does_not_keep_the_log_from_its_spares() {
    let (disk, node, h) = on_faulty_disk(&MemDisk::new());
    change_one(&node, &h, 1);
    let (held, waits) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let (hold, wait) = (held.clone(), waits.clone());
    disk.refuse(move |op, p| {
        while op == Op::Open && p.starts_with("/n/checkpoint") && hold.load(SeqCst) {
            wait.store(true, SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    });
    let n = node.clone();
    let checkpoint = std::thread::spawn(move || n.checkpoint());
    until("no checkpoint begins", || waits.load(SeqCst));
    let before = segments(&node);
    let mut v = 0;
    while segments(&node) < before + 4 {
        until("there is no spare", || node.dir().log().spares() == 2);
        grow_the_log(&node, &h, v);
        v += 1;
    }
    assert!(!checkpoint.is_finished());
    held.store(false, SeqCst);
    ends("the checkpoint hangs", move || checkpoint.join().unwrap()).unwrap();
}

/// Where there is no room for a new database, whoever makes it is told.
#[test]
fn a_new_database_on_a_full_disk_is_refused() {
    let mem = MemDisk::new();
    let disk = FaultyDisk::new(Arc::new(mem.clone()));
    disk.set_room(Some(10_000));
    let options = NodeOptions {
        env: env::Env::os().with_disk(Arc::new(disk.clone())),
        ..NodeOptions::default()
    };
    let open = ends("it waits for room", move || {
        Node::open(Path::new("/n"), options).map(drop)
    });
    assert_eq!(open.unwrap_err().code(), SqlState::DISK_FULL);
    let (_, node, h) = on_faulty_disk(&mem);
    change_one(&node, &h, 1);
}
