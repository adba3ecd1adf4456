//! Commits that are taken back, and the stamps of versions.
//!
//! A random history of commits runs on two storages. One takes it up to a cut. The other takes all of it, and then gives up what lies above
//! the cut. From there on the two must be alike: rows at every snapshot, positions and stamps of versions, index entries, the count of rows,
//! what reclamation frees, the bytes in use, and what later commits make of them.
//!
//! Left out on purpose: other threads. The caller of `rollback_above` has the storage for itself.
#![cfg(not(feature = "shuttle"))]

use base::key::KeyColumn;
use base::{Position, RowLayout, Type, Value};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use store::tree::Direction;
use store::{Guard, IndexSpec, NewVersion, SecondaryIndex, Storage, Store, entry_key, pin};
use workload::rng::Rng;

const KEYS: u64 = 40;

fn at(n: u32) -> Position {
    Position::new(1, n)
}

/// What one commit does: keys in order, each with the new value, or none for a delete.
type Writes = Vec<(u8, Option<i64>)>;

/// A table of one column with two indexes over it, in a store of its own.
struct Table {
    store: Store,
    storage: Arc<Storage>,
    layout: RowLayout,
}

impl Table {
    fn new() -> Table {
        let store = Store::default();
        let storage = Arc::new(Storage::new(20_000));
        let layout = RowLayout::new([Type::Int8]);
        let index = |id, desc| {
            let column = KeyColumn {
                ty: Type::Int8,
                desc,
                nulls_first: false,
                nullable: true,
            };
            Arc::new(SecondaryIndex::new(IndexSpec {
                id,
                unique: false,
                nulls_not_distinct: false,
                layout: layout.clone(),
                columns: vec![(0, column)],
            }))
        };
        storage.set_indexes(vec![index(20_001, false), index(20_002, true)]);
        store.add(storage.clone());
        Table {
            store,
            storage,
            layout,
        }
    }

    /// Does what a commit at this position does to a storage. Each version gets a stamp of its own.
    fn commit(&self, n: u32, writes: &Writes) {
        let guard = pin();
        let (storage, memory) = (&self.storage, &self.store.memory);
        storage.written_at(at(n));
        for (key, value) in writes {
            let record = storage.find_or_create(&[*key], memory, &guard);
            record.try_lock().expect("the only writer");
            let was = record.newest(&guard);
            let was_live = was.is_some_and(|v| v.row().is_some());
            let row = value.map(|v| {
                let mut row = vec![];
                self.layout.encode(1, &[Value::Int8(v)], &mut row).unwrap();
                row
            });
            for index in storage.indexes() {
                if let Some(row) = &row {
                    let mut entry = vec![];
                    index.spec.key_of(row, record.key(), &mut entry);
                    index.link(&entry, record, memory, &guard);
                }
            }
            let version = NewVersion::new(row.as_deref());
            memory.add(version.rounded());
            storage.count(i64::from(row.is_some()) - i64::from(was_live));
            record.push(version, at(n), stamp(n, *key));
            if was.is_some() || row.is_none() {
                storage.mark_stale(record, at(n));
            }
            record.unlock();
        }
    }

    /// Position, stamp and row of each version that a snapshot at `n` or above may see, newest first, by key.
    fn versions(&self, n: u32) -> Vec<(u8, Vec<(Position, u64, Option<Vec<u8>>)>)> {
        let guard = pin();
        let mut all = vec![];
        self.storage.for_each(&guard, |r| {
            let (mut chain, mut next) = (vec![], r.newest(&guard));
            while let Some(v) = next {
                chain.push((v.position(), v.stamp(), v.row().map(<[u8]>::to_vec)));
                next = v.older(&guard).filter(|_| v.position() > at(n));
            }
            if chain.iter().any(|v| v.2.is_some()) {
                all.push((r.key()[0], chain));
            }
        });
        all
    }

    /// The entries of each index in key order, and whether the row of each, at a snapshot at `n`, has the entry's key.
    fn entries(&self, n: u32) -> Vec<(Vec<u8>, bool)> {
        let guard = pin();
        let mut all = vec![];
        for index in self.storage.indexes() {
            let (mut found, mut scratch) = (vec![], vec![]);
            let ends = Bound::Unbounded;
            index.tree.scan(
                ends,
                ends,
                Direction::Forward,
                usize::MAX,
                &mut found,
                &guard,
            );
            for e in found {
                let row = e.record(&guard).row_at(at(n), &guard);
                let seen = row.is_some_and(|row| index.matches(e, row, &mut scratch));
                all.push((entry_key(e).to_vec(), seen));
            }
        }
        all
    }

    /// The entries that lead to a row.
    fn found(&self, n: u32) -> Vec<(Vec<u8>, bool)> {
        let mut all = self.entries(n);
        all.retain(|e| e.1);
        all
    }

    fn records(&self) -> usize {
        let guard: Guard = pin();
        let mut n = 0;
        self.storage.for_each(&guard, |_| n += 1);
        n
    }

    /// Passes until nothing waits.
    fn reclaim_all(&self, installed: u32) {
        for _ in 0..100 {
            if self.store.reclaim(at(installed)).waiting == 0 {
                return;
            }
        }
        panic!("the reclaimer does not come to an end");
    }
}

fn stamp(n: u32, key: u8) -> u64 {
    u64::from(n) << 8 | u64::from(key)
}

fn draw(random: &mut Rng) -> Writes {
    let keys: BTreeSet<u8> = (0..1 + random.below(8))
        .map(|_| random.below(KEYS) as u8)
        .collect();
    let value = |random: &mut Rng| (random.below(3) > 0).then(|| random.below(6) as i64);
    keys.into_iter().map(|k| (k, value(random))).collect()
}

fn alike(whole: &Table, cut: &Table, n: u32, case: &str) {
    assert_eq!(whole.versions(n), cut.versions(n), "{case}: versions");
    assert_eq!(whole.found(n), cut.found(n), "{case}: rows by index");
    let count = |t: &Table| t.storage.live_rows();
    assert_eq!(count(whole), count(cut), "{case}: count of rows");
    assert_eq!(
        count(cut),
        cut.versions(n)
            .iter()
            .filter(|(_, c)| c[0].2.is_some())
            .count() as u64
    );
}

/// The same after everything that no snapshot sees is gone.
fn alike_at_rest(whole: &Table, cut: &Table, n: u32, case: &str) {
    whole.reclaim_all(n);
    cut.reclaim_all(n);
    alike(whole, cut, n, case);
    assert_eq!(whole.entries(n), cut.entries(n), "{case}: entries");
    assert_eq!(whole.records(), cut.records(), "{case}: records");
    let used = |t: &Table| t.store.memory.used();
    assert_eq!(used(whole), used(cut), "{case}: bytes");
}

#[test]
fn what_is_taken_back_leaves_nothing_behind() {
    for seed in 0..100 {
        let mut random = Rng::new(seed);
        let (whole, cut) = (Table::new(), Table::new());
        let (before, above) = (1 + random.below(30) as u32, 1 + random.below(30) as u32);
        for n in 1..=before {
            let writes = draw(&mut random);
            whole.commit(n, &writes);
            cut.commit(n, &writes);
            if random.percent(20) {
                whole.store.reclaim(at(n));
            }
        }
        // What the caller promises: passes go on, but not beyond what the cut needs.
        let snapshot = whole.store.snapshots.take(|| at(before));
        for n in before + 1..=before + above {
            whole.commit(n, &draw(&mut random));
            if random.percent(20) {
                whole.store.reclaim(at(n));
            }
        }
        let guard = pin();
        let memory = &whole.store.memory;
        whole.storage.rollback_above(at(before), memory, &guard);
        drop((guard, snapshot));
        let case = format!("seed {seed}, cut");
        alike(&whole, &cut, before, &case);
        let mut last = before + above;
        if random.percent(50) {
            // New commits come above what was taken back, so the reclaimer counts on from there.
            alike_at_rest(&whole, &cut, last, &case);
        }
        for _ in 0..random.below(20) {
            last += 1;
            let writes = draw(&mut random);
            whole.commit(last, &writes);
            cut.commit(last, &writes);
        }
        alike_at_rest(&whole, &cut, last, &format!("seed {seed}, end"));
    }
}

#[test]
fn taking_back_nothing_changes_nothing() {
    let (whole, cut) = (Table::new(), Table::new());
    let mut random = Rng::new(1);
    for n in 1..=30 {
        let writes = draw(&mut random);
        whole.commit(n, &writes);
        cut.commit(n, &writes);
    }
    let guard = pin();
    let memory = &whole.store.memory;
    whole.storage.rollback_above(at(30), memory, &guard);
    drop(guard);
    alike(&whole, &cut, 30, "nothing above");
    alike_at_rest(&whole, &cut, 30, "nothing above, at rest");
    // And everything: as if no commit had been.
    let guard = pin();
    whole.storage.rollback_above(at(0), memory, &guard);
    drop(guard);
    whole.reclaim_all(30);
    assert_eq!((whole.records(), whole.storage.live_rows()), (0, 0));
    assert_eq!(whole.entries(30), []);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_stamp_stays_with_its_version() {
    let table = Table::new();
    let stamps = |n| -> Vec<u64> {
        let versions = table.versions(n);
        versions[0].1.iter().map(|v| v.1).collect()
    };
    for n in 1..=5 {
        table.commit(n, &vec![(7, Some(n.into()))]);
    }
    assert_eq!(stamps(0), [5, 4, 3, 2, 1].map(|n| stamp(n, 7)));
    // Versions between two snapshots go; those that are left keep theirs.
    let snapshots = [2, 4].map(|n| table.store.snapshots.take_at(at(n)).unwrap());
    table.store.reclaim(at(5));
    assert_eq!(stamps(0), [5, 4, 2].map(|n| stamp(n, 7)));
    let guard = pin();
    let memory = &table.store.memory;
    table.storage.rollback_above(at(4), memory, &guard);
    drop((guard, snapshots));
    assert_eq!(stamps(0), [4, 2].map(|n| stamp(n, 7)));
}
