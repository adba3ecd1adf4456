//! Rows whose keys keep changing, under scans: every scan sees each row exactly once.
//!
//! A token has a name that stays and a place (primary key) and a colour (secondary index) that
//! change; tokens are also deleted and inserted again elsewhere in one transaction. At any
//! snapshot there is one row per name. Scans run through both indexes, in both directions, in
//! small batches, over the whole and over halves, while versions are trimmed behind them.

mod schemas;

use base::schema::TableDef;
use base::{Oid, SqlState, Type, Value};
use node::{Node, NodeOptions};
use schemas::{column, define, index, table, unique};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use txn::{Access, Direction, Isolation, Scan, Stop, TableHandle, Txn, TxnOptions};
use workload::rng::Rng;

const TABLE: Oid = 20000;
const TOKENS: i64 = 30;
const PLACES: u64 = 120;
const WRITERS: u64 = 3;
const TURNS: usize = 1500;

/// tokens(place primary key, name unique, colour), index on colour.
fn tokens() -> TableDef {
    let columns = ["place", "name", "colour"].map(|name| column(name, Type::Int8, true));
    let more = vec![
        unique(TABLE + 3, "by_name", 1),
        index(TABLE + 4, "by_colour", 2),
    ];
    table(TABLE, "tokens", columns.into(), more)
}

fn row(place: i64, name: i64, colour: i64) -> [Value; 3] {
    [Value::Int8(place), Value::Int8(name), Value::Int8(colour)]
}

fn encoded(h: &TableHandle, index: usize, value: i64) -> Box<[u8]> {
    let mut out = Vec::new();
    h.table.keys[index][0].encode(&Value::Int8(value), &mut out);
    out.into()
}

/// (place, name, colour) of the rows between two values of an index, the upper one excluded.
fn scan(
    t: &mut Txn,
    h: &TableHandle,
    index: usize,
    (lo, hi): (Bound<i64>, Bound<i64>),
    direction: Direction,
    batch: usize,
) -> txn::Result<Vec<[i64; 3]>> {
    let access = if index == 0 {
        Access::Primary
    } else {
        Access::Index(index)
    };
    let keys = base::KeyRange {
        lo: lo.map(|v| encoded(h, index, v)),
        hi: hi.map(|v| encoded(h, index, v)),
    };
    let mut scan = Scan::new(access, keys, direction);
    let mut rows = Vec::new();
    while t.scan(h, &mut scan, batch, &mut |_, r| {
        rows.push([0, 1, 2].map(|c| r.get(c).as_i64().unwrap()));
        Ok(())
    })? {}
    match direction {
        Direction::Forward => assert!(rows.is_sorted_by_key(|r| r[index]), "{rows:?}"),
        Direction::Backward => assert!(rows.iter().rev().is_sorted_by_key(|r| r[index])),
    }
    Ok(rows)
}

/// One transaction of a writer. An error is a lost race.
fn turn(t: &mut Txn, h: &TableHandle, rng: &mut Rng) -> txn::Result<()> {
    t.begin_statement()?;
    let name = rng.between(1, TOKENS);
    let exact = (Bound::Included(name), Bound::Excluded(name + 1));
    let mut found = scan(t, h, 1, exact, Direction::Forward, 4)?;
    assert_eq!(found.len(), 1, "token {name}: {found:?}");
    let [place, _, colour] = found.pop().expect("one row");
    let key = |place| encoded(h, 0, place);
    let (to, shade) = (rng.below(PLACES) as i64, rng.between(0, 4));
    let free = to == place || t.get(h, &key(to), |_| ())?.is_none();
    match rng.below(4) {
        0 => t.update(h, &key(place), &row(place, name, shade))?,
        1 if free => t.update(h, &key(place), &row(to, name, shade))?,
        2 if free => {
            // Away and back in one transaction, in two statements.
            t.delete(h, &key(place))?;
            t.end_statement()?;
            t.begin_statement()?;
            t.insert(h, &row(to, name, shade))?;
        }
        3 => {
            // Out and in again at the same place: own writes over own deletes.
            t.delete(h, &key(place))?;
            t.insert(h, &row(place, name, colour))?;
            let own = scan(t, h, 1, exact, Direction::Backward, 1)?;
            assert_eq!(own, [[place, name, colour]], "own rows in a scan");
        }
        _ => {}
    }
    t.end_statement()
}

fn lost(stop: &Stop) -> bool {
    stop.error()
        .map(base::Error::code)
        .is_none_or(|code| code.is_retryable() || code == SqlState::UNIQUE_VIOLATION)
}

/// The names that a scan gave, each once.
fn whole(rows: &[[i64; 3]], what: &str) {
    let mut names: Vec<i64> = rows.iter().map(|r| r[1]).collect();
    names.sort_unstable();
    assert_eq!(names, (1..=TOKENS).collect::<Vec<_>>(), "{what}: {rows:?}");
}

fn look(node: &Node, h: &TableHandle, isolation: Isolation, rng: &mut Rng) -> txn::Result<()> {
    let options = TxnOptions {
        isolation,
        read_only: true,
        ..TxnOptions::default()
    };
    let mut t = node.begin(options, rng.percent(50));
    t.begin_statement()?;
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut first = None;
    for _ in 0..3 {
        let index = rng.below(3) as usize;
        let direction = if rng.percent(50) {
            Direction::Forward
        } else {
            Direction::Backward
        };
        let batch = 1 + rng.below(7) as usize;
        let what = format!("{isolation:?}, index {index}, {direction:?}, by {batch}");
        let mut rows = scan(&mut t, h, index, all, direction, batch)?;
        whole(&rows, &what);
        // The same in two halves of the index.
        let middle = [PLACES as i64 / 2, TOKENS / 2, 2][index];
        let below = (Bound::Unbounded, Bound::Excluded(middle));
        let above = (Bound::Included(middle), Bound::Unbounded);
        let mut halves = scan(&mut t, h, index, below, direction, batch)?;
        halves.extend(scan(&mut t, h, index, above, direction, batch)?);
        rows.sort_unstable();
        halves.sort_unstable();
        assert_eq!(rows, halves, "{what}: halves of one snapshot");
        let before = first.get_or_insert_with(|| rows.clone());
        assert_eq!(*before, rows, "{what}: one snapshot, two scans");
    }
    Ok(())
}

#[test]
fn scans_see_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let env = env::Env::os().with_disk(Arc::new(env::MemDisk::new()));
    let node = Node::open(
        dir.path(),
        NodeOptions {
            env,
            ..NodeOptions::default()
        },
    )
    .unwrap();
    define(&node, tokens());
    let h = node.manager().catalog().table(TABLE).unwrap().clone();
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    for name in 1..=TOKENS {
        t.insert(&h, &row(name * 3, name, name % 5)).unwrap();
    }
    let loaded = node.commit(t).unwrap();
    futures::executor::block_on(node.published(loaded));

    let (over, moves, looks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        let (node, h, over, moves, looks) = (&node, &h, &over, &moves, &looks);
        for level in [Isolation::RepeatableRead, Isolation::Serializable] {
            s.spawn(move || {
                let mut rng = Rng::new(99);
                while !over.load(Ordering::Relaxed) {
                    match look(node, h, level, &mut rng) {
                        Ok(()) => looks.fetch_add(1, Ordering::Relaxed),
                        Err(e) => panic!("{}: {e}", e.error().expect("an error").code()),
                    };
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|me| {
                s.spawn(move || {
                    let mut rng = Rng::new(me);
                    for n in 0..TURNS {
                        let isolation = match me {
                            0 => Isolation::RepeatableRead,
                            _ => Isolation::Serializable,
                        };
                        let options = TxnOptions {
                            isolation,
                            locking: n % 2 == 0,
                            ..TxnOptions::default()
                        };
                        let mut t = node.begin(options, false);
                        let done = turn(&mut t, h, &mut rng).and_then(|()| Ok(node.commit(t)?));
                        match done {
                            Ok(_) => moves.fetch_add(1, Ordering::Relaxed),
                            Err(e) if lost(&e) => 0,
                            Err(e) => panic!("{}: {e}", e.error().expect("an error").code()),
                        };
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        over.store(true, Ordering::Relaxed);
        for writer in ended {
            writer.expect("a writer ends in order");
        }
    });
    let (moves, looks) = (moves.into_inner(), looks.into_inner());
    println!("{moves} moves, {looks} looks");
    assert!(moves > 500 && looks > 0, "{moves} moves, {looks} looks");
}
