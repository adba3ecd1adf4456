//! Ranges with conditions (`txn::RowFilter`): which changes of a row in the range a commit minds.

use super::*;
use base::RowRef;
use txn::{Cause, RowFilter, Spared};

/// Takes rows whose `v` is at least this.
struct AtLeast(i64);

impl RowFilter for AtLeast {
    fn takes(&self, row: RowRef<'_>) -> bool {
        row.get(1).as_i64().is_some_and(|v| v >= self.0)
    }
}

/// Says of no row that it is none of those.
struct Unsure;

impl RowFilter for Unsure {
    fn takes(&self, _: RowRef<'_>) -> bool {
        true
    }
}

fn scan_all(t: &mut Txn, h: &TableHandle, access: Access, filter: Arc<dyn RowFilter>) {
    let mut scan = Scan::new(access, base::KeyRange::all(), Direction::Forward)
        .of_columns(&[0, 1])
        .filtered_by(filter);
    while t.scan(h, &mut scan, 2, &mut |_, _| Ok(())).unwrap() {}
}

/// The state of row 1 before and after: its `v`, if it is there.
fn becomes(
    before: Option<i64>,
    after: Option<i64>,
    access: Access,
    filter: Arc<dyn RowFilter>,
) -> (bool, u64) {
    let (_dir, node, h) = with_rows(4);
    let set = |v: Option<i64>| {
        let mut t = begin(&node, Isolation::ReadCommitted, true);
        match (v, value(&mut t, &h, 1)) {
            (Some(v), Some(_)) => {
                t.update(&h, &key(1), &row(1, v)).unwrap();
            }
            (Some(v), None) => {
                t.insert(&h, &row(1, v)).unwrap();
            }
            (None, _) => {
                t.delete(&h, &key(1)).unwrap();
            }
        }
        node.commit(t).unwrap();
    };
    set(before);
    let mut t = begin(&node, Isolation::Serializable, true);
    scan_all(&mut t, &h, access, filter);
    t.insert(&h, &row(100, 0)).unwrap();
    set(after);
    let outcome = node.commit(t);
    let stats = &node.manager().stats;
    assert_eq!(
        stats.aborts(Cause::TableChanged),
        u64::from(outcome.is_err())
    );
    (outcome.is_ok(), stats.spared(Spared::Predicate))
}

#[test]
fn only_rows_that_the_condition_takes_matter() {
    for access in [Access::Primary, Access::Index(1)] {
        for (before, after, spared) in [
            (Some(10), Some(11), true),
            (None, Some(11), true),
            (Some(10), None, true),
            // It comes to pass, it stops passing, it passes before and after.
            (Some(10), Some(50), false),
            (None, Some(50), false),
            (Some(50), Some(10), false),
            (Some(50), None, false),
            (Some(50), Some(51), false),
        ] {
            let at_least = Arc::new(AtLeast(20));
            let found = becomes(before, after, access, at_least);
            let wanted = (spared, u64::from(spared));
            assert_eq!(found, wanted, "{before:?} to {after:?} by {access:?}");
        }
        // Who is not sure says yes, as for an error.
        let unsure = Arc::new(Unsure);
        assert_eq!(becomes(Some(10), Some(11), access, unsure), (false, 0));
    }
}

/// What a transaction counts as: spared once, by the stronger of the two.
#[test]
fn what_spared_a_commit_is_counted_once() {
    let (_dir, node, h) = with_rows(4);
    let stats = &node.manager().stats;
    let name = |id: i64| {
        let mut t = begin(&node, Isolation::ReadCommitted, true);
        let named = vec![Value::Int8(id), Value::Int8(10), Value::from("other")];
        t.update(&h, &key(id), &named).unwrap();
        node.commit(t).unwrap();
    };
    let mut t = begin(&node, Isolation::Serializable, true);
    scan_all(&mut t, &h, Access::Primary, Arc::new(AtLeast(20)));
    t.insert(&h, &row(100, 0)).unwrap();
    name(2);
    node.commit(t).unwrap();
    assert_eq!(stats.spared(Spared::Columns), 1);
    let mut t = begin(&node, Isolation::Serializable, true);
    scan_all(&mut t, &h, Access::Primary, Arc::new(AtLeast(20)));
    t.insert(&h, &row(101, 0)).unwrap();
    change(&node, &h, 1, 12);
    change(&node, &h, 3, 13);
    node.commit(t).unwrap();
    let spared = Spared::ALL.map(|by| stats.spared(by));
    assert_eq!(spared, [1, 1]);
}

/// A scan that stopped early has covered its range up to there, whatever it takes.
#[test]
fn a_filter_changes_nothing_of_how_far_a_scan_came() {
    for (id, v, lost) in [(0, 50, true), (0, 11, false), (3, 50, false)] {
        let (_dir, node, h) = with_rows(4);
        change(&node, &h, 1, 50);
        let mut t = begin(&node, Isolation::Serializable, true);
        let scan = Scan::new(Access::Primary, base::KeyRange::all(), Direction::Forward);
        let mut scan = scan.of_columns(&[0, 1]).filtered_by(Arc::new(AtLeast(20)));
        t.scan(&h, &mut scan, 2, &mut |_, _| Ok(())).unwrap();
        t.insert(&h, &row(100, 0)).unwrap();
        change(&node, &h, id, v);
        assert_eq!(node.commit(t).is_err(), lost, "row {id} to {v}");
    }
}

/// A row that was read by key may change in columns that were not looked at, at commit and when the snapshot moves.
#[test]
fn a_row_read_by_key_is_kept_with_its_columns() {
    let rename = |node: &Node, h: &TableHandle| {
        let mut t = begin(node, Isolation::ReadCommitted, true);
        let named = vec![Value::Int8(1), Value::Int8(10), Value::from("other")];
        t.update(h, &key(1), &named).unwrap();
        node.commit(t).unwrap();
    };
    let leave = |node: &Node, h: &TableHandle| {
        let mut t = begin(node, Isolation::ReadCommitted, true);
        t.delete(h, &key(1)).unwrap();
        node.commit(t).unwrap();
    };
    type Meanwhile<'a> = &'a dyn Fn(&Node, &TableHandle);
    for (columns, meanwhile, kept) in [
        (&[0u16, 1][..], &rename as Meanwhile<'_>, true),
        (&[0, 2], &rename, false),
        (&[], &rename, true),
        (&[], &leave, false),
    ] {
        for moves in [false, true] {
            let (_dir, node, h) = with_rows(4);
            let mut t = begin(&node, Isolation::Serializable, true);
            let looked = txn::column_set(columns);
            t.get_columns(&h, &key(1), looked, |_| ()).unwrap().unwrap();
            meanwhile(&node, &h);
            change(&node, &h, 2, 20);
            let stats = &node.manager().stats;
            if moves {
                // The row that it changes has a newer version than its snapshot shows.
                t.begin_statement().unwrap();
                let e = t.update(&h, &key(2), &row(2, 21)).unwrap_err();
                assert!(matches!(e, txn::Stop::Restart));
                t.rollback_statement();
                let moved = t.begin_statement();
                assert_eq!(moved.is_ok(), kept, "{columns:?}");
                if moved.is_err() {
                    continue;
                }
                t.update(&h, &key(2), &row(2, 21)).unwrap();
            }
            t.insert(&h, &row(100, 0)).unwrap();
            assert_eq!(node.commit(t).is_ok(), kept, "{columns:?}");
            assert_eq!(stats.spared(Spared::Columns), u64::from(kept));
            assert_eq!(stats.aborts(Cause::ReadChanged), u64::from(!kept));
        }
    }
}

/// Nothing is lost: what is written over is the version that was read, whatever of it was looked at.
#[test]
fn a_row_that_is_written_is_kept_whole() {
    let (_dir, node, h) = with_rows(4);
    for locking in [false, true] {
        let mut t = begin(&node, Isolation::Serializable, locking);
        let looked = txn::column_set(&[0]);
        t.get_columns(&h, &key(1), looked, |_| ()).unwrap().unwrap();
        if !locking {
            t.update(&h, &key(1), &row(1, 30)).unwrap();
            change(&node, &h, 1, 20);
            let e = node.commit(t).map(|_| ()).unwrap_err();
            assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
        } else {
            change(&node, &h, 1, 21);
            t.begin_statement().unwrap();
            let e = t.update(&h, &key(1), &row(1, 30)).unwrap_err();
            assert!(matches!(e, txn::Stop::Restart));
            t.rollback_statement();
            // Its next run sees what it writes over.
            t.begin_statement().unwrap();
            assert_eq!(value(&mut t, &h, 1), Some(21));
            t.update(&h, &key(1), &row(1, 22)).unwrap();
            node.commit(t).unwrap();
        }
    }
}
