//! The engine without SQL: tables made by hand, transactions from threads, restarts on the same directory.

mod candidates;
mod contention;
mod full_disk;
mod predicates;
mod schemas;

use base::schema::*;
use base::{Committing, Oid, Position, SqlState, Type, Value};
use node::{Node, NodeOptions};
use schemas::*;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::{Access, Direction, Isolation, LockMode, Scan, TableHandle, Txn, TxnOptions, WaitPolicy};

/// t(id int8 primary key, v int8, name text unique), index on v.
fn sample(id: Oid) -> TableDef {
    let columns = vec![
        column("id", Type::Int8, true),
        column("v", Type::Int8, false),
        column("name", Type::Text, false),
    ];
    let more = vec![index(id + 3, "by_v", 1), unique(id + 4, "by_name", 2)];
    table(id, &format!("t{id}"), columns, more)
}

fn open(path: &Path) -> Node {
    Node::open(
        path,
        NodeOptions {
            segment_bytes: 1 << 20,
            ..NodeOptions::default()
        },
    )
    .unwrap()
}

fn handle(node: &Node, id: Oid) -> Arc<TableHandle> {
    node.manager().catalog().table(id).unwrap().clone()
}

/// A new directory, a node on it and its one table; the directory is there as long as the first is held.
fn empty() -> (tempfile::TempDir, Node, Arc<TableHandle>) {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    define(&node, sample(20000));
    let h = handle(&node, 20000);
    (dir, node, h)
}

/// The same with rows from 0 to `n`, less one, whose `v` is 10.
fn with_rows(n: i64) -> (tempfile::TempDir, Node, Arc<TableHandle>) {
    let (dir, node, h) = empty();
    let mut t = begin(&node, Isolation::Serializable, true);
    for i in 0..n {
        t.insert(&h, &row(i, 10)).unwrap();
    }
    node.commit(t).unwrap();
    (dir, node, h)
}

fn begin(node: &Node, isolation: Isolation, locking: bool) -> Txn {
    let mut t = node.begin(
        TxnOptions {
            isolation,
            locking,
            ..TxnOptions::default()
        },
        false,
    );
    t.begin_statement().unwrap();
    t
}

fn row(id: i64, v: i64) -> Vec<Value> {
    vec![
        Value::Int8(id),
        Value::Int8(v),
        Value::from(format!("n{id}")),
    ]
}

fn value(t: &mut Txn, h: &TableHandle, id: i64) -> Option<i64> {
    t.get(h, &key(id), |r| r.get(1).as_i64().unwrap()).unwrap()
}

fn all(t: &mut Txn, h: &TableHandle, access: Access, direction: Direction) -> Vec<(i64, i64)> {
    let mut s = Scan::new(access, base::KeyRange::all(), direction);
    let mut out = vec![];
    while t
        .scan(h, &mut s, 7, &mut |_, r| {
            out.push((r.get(0).as_i64().unwrap(), r.get(1).as_i64().unwrap()));
            Ok(())
        })
        .unwrap()
    {}
    out
}

#[test]
fn own_writes_scans_and_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let node = open(dir.path());
        define(&node, sample(20000));
        let h = handle(&node, 20000);
        let mut t = begin(&node, Isolation::Serializable, true);
        for i in 0..100 {
            t.insert(&h, &row(i, 100 - i)).unwrap();
        }
        assert_eq!(
            all(&mut t, &h, Access::Primary, Direction::Backward)[0],
            (99, 1)
        );
        node.commit(t).unwrap();
        let mut t = begin(&node, Isolation::Serializable, true);
        t.update(&h, &key(50), &row(50, 1000)).unwrap();
        t.delete(&h, &key(0)).unwrap();
        t.insert(&h, &row(200, -5)).unwrap();
        let by_v = all(&mut t, &h, Access::Index(1), Direction::Forward);
        assert_eq!(
            (by_v[0], by_v.last().copied(), by_v.len()),
            ((200, -5), Some((50, 1000)), 100)
        );
        let e = t.insert(&h, &row(7, 0)).unwrap_err();
        assert_eq!(
            (
                e.error().expect("an error").code(),
                e.error().expect("an error").fields().constraint.as_str()
            ),
            (SqlState::UNIQUE_VIOLATION, "pk")
        );
        let mut dup = row(300, 0);
        dup[2] = Value::text("n9");
        assert_eq!(
            t.insert(&h, &dup)
                .unwrap_err()
                .error()
                .expect("an error")
                .fields()
                .constraint
                .as_str(),
            "by_name"
        );
        let p = node.commit(t).unwrap();
        futures::executor::block_on(node.published(p));
    }
    for round in 0..3 {
        let node = open(dir.path());
        let h = handle(&node, 20000);
        let mut t = begin(&node, Isolation::Serializable, true);
        let rows = all(&mut t, &h, Access::Primary, Direction::Forward);
        assert_eq!(rows.len(), 100);
        assert_eq!(value(&mut t, &h, 50), Some(1000));
        assert_eq!(value(&mut t, &h, 0), None);
        let mut by_v = all(&mut t, &h, Access::Index(1), Direction::Forward);
        by_v.sort_unstable();
        assert_eq!(by_v, rows, "indexes equal rows");
        drop(t);
        if round == 1 {
            node.checkpoint().unwrap();
        }
        assert_eq!(
            node.report().checkpoint_rows,
            if round == 2 { 100 } else { 0 }
        );
    }
}

#[test]
fn write_skew_is_refused_and_snapshots_move() {
    let (_dir, node, h) = with_rows(4);
    for (level, both) in [
        (Isolation::Serializable, false),
        (Isolation::RepeatableRead, true),
    ] {
        let (mut a, mut b) = (begin(&node, level, true), begin(&node, level, true));
        let va = value(&mut a, &h, 0).unwrap() + value(&mut a, &h, 1).unwrap();
        let vb = value(&mut b, &h, 0).unwrap() + value(&mut b, &h, 1).unwrap();
        a.update(&h, &key(0), &row(0, va + 1)).unwrap();
        b.update(&h, &key(1), &row(1, vb + 1)).unwrap();
        node.commit(a).unwrap();
        let second = node.commit(b);
        assert_eq!(second.is_ok(), both, "{level:?}");
        if let Err(e) = second {
            assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
        }
    }
    // A blind update of a row that changed since the snapshot: nothing read has changed, so the snapshot moves.
    let mut a = begin(&node, Isolation::Serializable, true);
    assert!(value(&mut a, &h, 3).is_some());
    a.end_statement().unwrap();
    let mut b = begin(&node, Isolation::Serializable, true);
    b.update(&h, &key(2), &row(2, 77)).unwrap();
    node.commit(b).unwrap();
    a.begin_statement().unwrap();
    let e = a.update(&h, &key(2), &row(2, 78)).unwrap_err();
    assert!(matches!(e, txn::Stop::Restart));
    a.rollback_statement();
    a.begin_statement().unwrap();
    assert_eq!(value(&mut a, &h, 2), Some(77));
    a.update(&h, &key(2), &row(2, 78)).unwrap();
    assert_eq!(a.moves(), 1);
    node.commit(a).unwrap();
}

#[test]
fn phantoms_are_caught() {
    let (_dir, node, h) = empty();
    for access in [Access::Primary, Access::Index(1)] {
        let base = if access == Access::Primary { 0 } else { 1000 };
        let (mut a, mut b) = (
            begin(&node, Isolation::Serializable, false),
            begin(&node, Isolation::Serializable, false),
        );
        let (na, nb) = (
            all(&mut a, &h, access, Direction::Forward).len(),
            all(&mut b, &h, access, Direction::Backward).len(),
        );
        a.insert(&h, &row(base + 1, na as i64)).unwrap();
        b.insert(&h, &row(base + 2, nb as i64)).unwrap();
        node.commit(a).unwrap();
        assert_eq!(
            node.commit(b).unwrap_err().code(),
            SqlState::SERIALIZATION_FAILURE
        );
    }
}

/// Threads move amounts between rows; the sum stays, in every snapshot and after a restart, and nothing but 40001 is refused.
#[test]
fn a_bank_keeps_its_sum() {
    const ROWS: i64 = 16;
    let dir = tempfile::tempdir().unwrap();
    for locking in [true, false] {
        let node = open(&dir.path().join(locking.to_string()));
        define(&node, sample(20000));
        let h = handle(&node, 20000);
        let mut t = begin(&node, Isolation::Serializable, true);
        for i in 0..ROWS {
            t.insert(&h, &row(i, 100)).unwrap();
        }
        node.commit(t).unwrap();
        std::thread::scope(|s| {
            for n in 0..4u64 {
                let (node, h) = (&node, &h);
                s.spawn(move || {
                    let mut x = 88172645463325252u64 ^ (n << 32);
                    let mut done = 0;
                    while done < 500 {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        let (from, to) = ((x % ROWS as u64) as i64, (x >> 20) as i64 % ROWS);
                        if from == to {
                            continue;
                        }
                        let mut t = begin(node, Isolation::Serializable, locking);
                        let sum: i64 = all(&mut t, h, Access::Index(1), Direction::Forward)
                            .iter()
                            .map(|r| r.1)
                            .sum();
                        assert_eq!(sum, 100 * ROWS);
                        let (a, b) = (
                            value(&mut t, h, from).unwrap(),
                            value(&mut t, h, to).unwrap(),
                        );
                        let outcome = t
                            .update(h, &key(from), &row(from, a - 1))
                            .and_then(|()| t.update(h, &key(to), &row(to, b + 1)))
                            .and_then(|()| t.end_statement())
                            .and_then(|()| Ok(node.commit(t)?));
                        match outcome {
                            Ok(_) => done += 1,
                            Err(e) => {
                                let again = e.error().is_none_or(|e| e.code().is_retryable());
                                assert!(again, "{e}")
                            }
                        }
                    }
                });
            }
        });
        let mut t = begin(&node, Isolation::Serializable, true);
        let sum: i64 = all(&mut t, &h, Access::Primary, Direction::Forward)
            .iter()
            .map(|r| r.1)
            .sum();
        assert_eq!(sum, 100 * ROWS);
        drop(t);
        let path = node.path().to_owned();
        drop(node);
        let node = open(&path);
        let h = handle(&node, 20000);
        let mut t = begin(&node, Isolation::Serializable, true);
        let mut by_v = all(&mut t, &h, Access::Index(1), Direction::Forward);
        by_v.sort_unstable();
        assert_eq!(by_v, all(&mut t, &h, Access::Primary, Direction::Forward));
        assert_eq!(by_v.iter().map(|r| r.1).sum::<i64>(), 100 * ROWS);
    }
}

#[test]
fn an_idle_snapshot_and_a_hot_row_do_not_fill_the_memory() {
    let (_dir, node, h) = empty();
    let mut t = begin(&node, Isolation::Serializable, true);
    t.insert(&h, &row(1, 0)).unwrap();
    node.commit(t).unwrap();
    let mut idle = begin(&node, Isolation::RepeatableRead, true);
    assert_eq!(value(&mut idle, &h, 1), Some(0));
    let before = node.manager().store.memory.used();
    for i in 1..20_000 {
        let mut t = begin(&node, Isolation::Serializable, true);
        t.update(&h, &key(1), &row(1, i)).unwrap();
        let p = node.commit(t).unwrap();
        if i % 1000 == 0 {
            futures::executor::block_on(node.published(p));
        }
    }
    // Trimming runs beside it.
    let deadline = Instant::now() + Duration::from_secs(60);
    let grown = || node.manager().store.memory.used().saturating_sub(before);
    while grown() >= 2_000_000 {
        assert!(
            Instant::now() < deadline,
            "20,000 updates of one row left {} bytes",
            grown()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(value(&mut idle, &h, 1), Some(0));
}

#[test]
fn a_key_taken_after_the_snapshot_is_a_conflict_before_it_is_a_duplicate() {
    let (_dir, node, h) = empty();
    let take = |id: i64| {
        let mut t = begin(&node, Isolation::Serializable, true);
        t.insert(&h, &row(id, 0)).unwrap();
        node.commit(t).unwrap();
    };
    let code = |t: &mut Txn, id: i64| {
        t.insert(&h, &row(id, 1))
            .unwrap_err()
            .error()
            .expect("an error")
            .code()
    };
    take(1);

    let mut optimistic = begin(&node, Isolation::Serializable, false);
    assert_eq!(code(&mut optimistic, 1), SqlState::UNIQUE_VIOLATION);
    take(2);
    assert_eq!(code(&mut optimistic, 2), SqlState::SERIALIZATION_FAILURE);

    // A locking transaction moves its snapshot; then the key is a duplicate.
    let mut locking = begin(&node, Isolation::Serializable, true);
    take(3);
    let stop = locking.insert(&h, &row(3, 1)).unwrap_err();
    assert!(matches!(stop, txn::Stop::Restart));
    locking.rollback_statement();
    locking.begin_statement().unwrap();
    assert_eq!(code(&mut locking, 3), SqlState::UNIQUE_VIOLATION);
    drop(locking);

    // Unless it has read what changed meanwhile.
    let mut reader = begin(&node, Isolation::Serializable, true);
    assert_eq!(value(&mut reader, &h, 4), None);
    reader.end_statement().unwrap();
    reader.begin_statement().unwrap();
    take(4);
    let stop = reader.insert(&h, &row(4, 1)).unwrap_err();
    assert!(matches!(stop, txn::Stop::Restart));
    reader.rollback_statement();
    let moved = reader.begin_statement().unwrap_err();
    assert_eq!(moved.code(), SqlState::SERIALIZATION_FAILURE);

    let mut committed = begin(&node, Isolation::ReadCommitted, true);
    take(5);
    assert_eq!(code(&mut committed, 5), SqlState::UNIQUE_VIOLATION);
}

fn contended(node: &Node) -> Txn {
    let options = TxnOptions {
        contended: true,
        ..TxnOptions::default()
    };
    node.begin(options, false)
}

fn change(node: &Node, h: &TableHandle, id: i64, v: i64) {
    let mut t = begin(node, Isolation::ReadCommitted, true);
    t.update(h, &key(id), &row(id, v)).unwrap();
    node.commit(t).unwrap();
}

#[test]
fn a_contended_transaction_reads_what_is_there_now_and_learns_early_that_it_lost() {
    let (_dir, node, h) = with_rows(4);

    let mut a = contended(&node);
    a.begin_statement().unwrap();
    assert_eq!(value(&mut a, &h, 0), Some(10));
    a.end_statement().unwrap();
    change(&node, &h, 1, 11);
    a.begin_statement().unwrap();
    assert_eq!((value(&mut a, &h, 1), a.moves()), (Some(11), 1));
    a.end_statement().unwrap();
    // What it has read changes: it goes on as of then, and may end so, but it must not write.
    change(&node, &h, 0, 20);
    change(&node, &h, 2, 12);
    a.begin_statement().unwrap();
    assert_eq!(value(&mut a, &h, 2), Some(10));
    let e = a.update(&h, &key(3), &row(3, 0)).unwrap_err();
    assert_eq!(
        e.error().expect("an error").code(),
        SqlState::SERIALIZATION_FAILURE
    );
    a.rollback_statement();
    node.commit(a).unwrap();
}

/// Foreign keys, and duplicates at READ COMMITTED, are judged by the newest state: an error of them tells of commits above the snapshot.
#[test]
fn an_error_that_tells_of_newer_commits_waits_for_them() {
    let (_dir, node, h) = with_rows(4);
    let mut child = table(30000, "child", vec![column("id", Type::Int8, true)], vec![]);
    child.foreign_keys = vec![ForeignKey {
        id: 30010,
        name: "fk".into(),
        columns: vec![0],
        ref_table: h.table.def.id,
        ref_index: h.table.def.indexes[0].id,
        ref_columns: vec![0],
        on_delete: FkAction::NoAction,
        on_update: FkAction::NoAction,
        deferral: base::schema::Deferral::Never,
        not_valid: false,
    }];
    define(&node, child);
    let (h, child) = (handle(&node, 20000), handle(&node, 30000));
    let put = |h: &TableHandle, row: &[Value]| {
        let mut t = begin(&node, Isolation::Serializable, true);
        t.insert(h, row).unwrap();
        t.end_statement().unwrap();
        node.commit(t).unwrap().position()
    };
    let waits_for = |t: Txn, e: base::Error, code: SqlState, commit: Position| {
        assert_eq!(e.code(), code);
        assert!(t.snapshot().unwrap() < commit);
        let held = node.rollback(t);
        assert!(held.position() >= commit);
        futures::executor::block_on(node.published(held));
    };

    // A child that came; a parent that went; a duplicate.
    let mut t = begin(&node, Isolation::RepeatableRead, true);
    let commit = put(&child, &[Value::Int8(1)]);
    t.delete(&h, &key(1)).unwrap();
    let e = t.end_statement().unwrap_err();
    waits_for(t, e.only_error(), SqlState::FOREIGN_KEY_VIOLATION, commit);
    let mut t = begin(&node, Isolation::RepeatableRead, true);
    let mut other = begin(&node, Isolation::Serializable, true);
    other.delete(&h, &key(2)).unwrap();
    other.end_statement().unwrap();
    let commit = node.commit(other).unwrap().position();
    t.insert(&child, &[Value::Int8(2)]).unwrap();
    let e = t.end_statement().unwrap_err();
    waits_for(t, e.only_error(), SqlState::FOREIGN_KEY_VIOLATION, commit);
    let mut t = begin(&node, Isolation::ReadCommitted, true);
    let commit = put(&h, &row(9, 0));
    let e = t.insert(&h, &row(9, 1)).unwrap_err();
    waits_for(t, e.only_error(), SqlState::UNIQUE_VIOLATION, commit);
}

#[test]
fn columns_that_a_scan_did_not_look_at_may_change() {
    let (_dir, node, h) = with_rows(4);
    // (the index that is scanned, the columns looked at, what another transaction does meanwhile, whether the scan saw it)
    type Meanwhile = fn(&Node, &TableHandle);
    let update: Meanwhile = |n, h| change(n, h, 1, 11);
    let delete: Meanwhile = |n, h| {
        let mut t = begin(n, Isolation::ReadCommitted, true);
        t.delete(h, &key(1)).unwrap();
        n.commit(t).unwrap();
    };
    let insert: Meanwhile = |n, h| {
        let mut t = begin(n, Isolation::ReadCommitted, true);
        t.insert(h, &row(1, 10)).unwrap();
        n.commit(t).unwrap();
    };
    for (access, columns, meanwhile, seen) in [
        (Access::Primary, &[0u16, 2][..], update, false),
        (Access::Primary, &[0, 1], update, true),
        (Access::Index(1), &[0], update, true),
        (Access::Index(2), &[0], update, false),
        (Access::Primary, &[], delete, true),
        (Access::Primary, &[], insert, true),
    ] {
        let mut t = begin(&node, Isolation::Serializable, true);
        let mut scan =
            Scan::new(access, base::KeyRange::all(), Direction::Forward).of_columns(columns);
        while t.scan(&h, &mut scan, 2, &mut |_, _| Ok(())).unwrap() {}
        t.insert(&h, &row(100, 0)).unwrap();
        meanwhile(&node, &h);
        let outcome = node.commit(t);
        assert_eq!(outcome.is_err(), seen, "{access:?} {columns:?}");
        change(&node, &h, 0, 10);
        let mut t = begin(&node, Isolation::ReadCommitted, true);
        if outcome.is_ok() {
            t.delete(&h, &key(100)).unwrap();
        }
        if value(&mut t, &h, 1).is_some_and(|v| v != 10) {
            t.update(&h, &key(1), &row(1, 10)).unwrap();
        }
        node.commit(t).unwrap();
    }
}

/// Whoever flushes his own commit has others to serve: a full disk is waited for by the flusher alone.
#[test]
fn a_full_disk_holds_nobody_but_the_flusher() {
    let disk = env::FaultyDisk::new(Arc::new(env::MemDisk::new()));
    let env = env::Env::os().with_disk(Arc::new(disk.clone()));
    let options = NodeOptions {
        env,
        ..NodeOptions::default()
    };
    let node = Arc::new(Node::open(Path::new("/n"), options).unwrap());
    define(&node, sample(20000));
    let h = handle(&node, 20000);
    for i in 0..10 {
        disk.set_room(Some(0));
        let mut t = begin(&node, Isolation::Serializable, true);
        t.insert(&h, &row(i, 10)).unwrap();
        let Committing::Done(held) = node.committing(t, i as u64 + 1) else {
            panic!("this node decides");
        };
        let held = held.unwrap();
        let (back, returned) = std::sync::mpsc::channel();
        let n = node.clone();
        let flushes = std::thread::spawn(move || {
            n.flush_here(true);
            back.send(()).unwrap();
        });
        let waited = returned.recv_timeout(Duration::from_secs(30));
        assert!(!node.is_published(held), "on a full disk");
        disk.set_room(None);
        waited.expect("it waits for room on the disk");
        flushes.join().unwrap();
        futures::executor::block_on(node.published(held));
    }
}

/// After a restart nobody has been given a position: an error that tells of the newest rows waits for nothing.
#[test]
fn an_error_after_a_restart_is_told_at_once() {
    let (dir, node, _) = with_rows(3);
    node.stop();
    drop(node);
    let node = open(dir.path());
    let h = handle(&node, 20000);
    let mut t = begin(&node, Isolation::ReadCommitted, true);
    let e = t.insert(&h, &row(1, 10)).unwrap_err();
    assert_eq!(
        e.error().expect("an error").code(),
        SqlState::UNIQUE_VIOLATION
    );
    let held = node.rollback(t);
    assert!(node.is_published(held), "{held:?}");
}

/// An order in which every commit fails half-way.
struct Broken;

impl txn::CommitOrder for Broken {
    fn wait_for_room(&self, _: &dyn Fn() -> base::Result<()>) -> base::Result<()> {
        Ok(())
    }

    fn begin(&self) -> base::Result<(Position, u64)> {
        panic!("on purpose")
    }

    fn ready(&self, _: u64, _: Vec<u8>, _: Vec<u8>) {
        unreachable!("none begins")
    }

    fn abort(&self, _: u64) {
        unreachable!("none begins")
    }
}

const BROKEN: &str = "CANON_BROKEN_COMMIT_TEST";

/// For the test below, in a process of its own.
#[test]
fn the_process_whose_commit_panics() {
    let Some(path) = std::env::var_os(BROKEN) else {
        return;
    };
    let node = open(Path::new(&path));
    define(&node, sample(20000));
    let h = handle(&node, 20000);
    let mut t = begin(&node, Isolation::Serializable, true);
    t.insert(&h, &row(1, 1)).unwrap();
    let commit = std::panic::AssertUnwindSafe(|| t.commit(&Broken));
    _ = std::panic::catch_unwind(commit);
    println!("went on");
}

#[test]
fn a_commit_that_panics_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "the_process_whose_commit_panics", "--nocapture"]);
    let ended = other.env(BROKEN, dir.path()).output().unwrap();
    let said = |of: &[u8], what| String::from_utf8_lossy(of).contains(what);
    assert!(said(&ended.stderr, "a panic in a commit"), "{ended:?}");
    assert!(!said(&ended.stdout, "went on"), "{ended:?}");
    assert!(ended.status.signal().is_some(), "{ended:?}");
}

/// A schema change that is cancelled while it goes over the table's rows leaves the table as it was.
#[test]
fn a_schema_change_can_be_cancelled_at_each_step() {
    let (_dir, node, h) = with_rows(600);
    let with = |more: Vec<Index>| {
        let mut def = sample(20000);
        def.indexes.extend(more);
        vec![Change::Put(Object::Table(def))]
    };
    // Before the table is still; after that, while an index is built.
    for still in [false, true] {
        let options = TxnOptions::default();
        let interrupt = options.interrupt.clone();
        let mut t = node.begin(options, false);
        t.begin_statement().unwrap();
        t.lock_schema().unwrap();
        if still {
            t.change_schema(with(vec![])).unwrap();
        }
        let cancel = txn::Interrupt::CANCEL;
        interrupt
            .0
            .store(cancel, std::sync::atomic::Ordering::SeqCst);
        let e = t.change_schema(with(vec![index(20009, "more", 1)]));
        assert_eq!(
            e.unwrap_err().error().expect("an error").code(),
            SqlState::QUERY_CANCELED
        );
        node.rollback(t);
        let mut t = begin(&node, Isolation::Serializable, true);
        let id = 1000 + i64::from(still);
        t.insert(&h, &row(id, 1)).unwrap();
        node.commit(t).unwrap();
    }
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    t.change_schema(with(vec![index(20009, "more", 1)]))
        .unwrap();
    node.commit(t).unwrap();
    let h = handle(&node, 20000);
    let mut t = begin(&node, Isolation::Serializable, true);
    let by = Access::Index(h.indexes.len() - 1);
    assert_eq!(all(&mut t, &h, by, Direction::Forward).len(), 602);
}

/// What an open cursor will read has to be known: of what is not, nobody could say whether it stayed the same.
#[test]
fn a_promise_to_read_what_is_not_there_is_refused() {
    let (_dir, node, h) = with_rows(3);
    let mut t = begin(&node, Isolation::Serializable, false);
    t.will_read(&[h.storage.id]).unwrap();
    let ranges = t.reads().unwrap().expect("it reads").ranges;
    assert_eq!(ranges.len(), 1);
    let gone = h.storage.id + 1_000_000;
    let e = t.will_read(&[gone]).unwrap_err();
    assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
    node.rollback(t);
}
