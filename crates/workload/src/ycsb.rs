//! YCSB: one table, point reads and read-writes by key (Cooper et al., SoCC 2010).
//!
//! The shape is the one COCO and C5 measure with: a row of ten columns of ten bytes, a
//! transaction of ten operations on distinct keys, of which some read a row and write one of its
//! columns. By default one million rows, eight reads and two read-writes, uniform keys.
//!
//! The keys of a transaction are known when it begins, as in a stored procedure; it names them before it reads them
//! ([`KvTxn::expect`]), and whoever runs it may use that or not.
//!
//! Left out on purpose: scans and inserts (workloads D and E), which no bar in the plans names.

use crate::kv::{Cell, Column, End, KvTxn, Table};
use crate::rng::{Keys, Rng};

pub const USERTABLE: usize = 0;
const FIELDS: usize = 10;
const FIELD_BYTES: usize = 10;
/// Keys named at once before they are read.
const EXPECTED: usize = 16;

pub const TABLES: &[Table] = &[Table {
    name: "usertable",
    columns: &[
        ("ycsb_key", Column::Int),
        ("field0", Column::Text),
        ("field1", Column::Text),
        ("field2", Column::Text),
        ("field3", Column::Text),
        ("field4", Column::Text),
        ("field5", Column::Text),
        ("field6", Column::Text),
        ("field7", Column::Text),
        ("field8", Column::Text),
        ("field9", Column::Text),
    ],
    key: &[0],
    indexes: &[],
}];

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Ycsb {
    pub rows: u64,
    pub reads: usize,
    pub read_writes: usize,
    keys: Keys,
}

/// One transaction's parameters, reused from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Params {
    keys: Vec<u64>,
    field: usize,
    value: [u8; FIELD_BYTES],
}

impl Default for Ycsb {
    fn default() -> Ycsb {
        Ycsb::new(1_000_000, 8, 2, 0.0)
    }
}

impl Ycsb {
    /// `theta` 0 draws keys uniformly; 0.99 is YCSB's usual skew.
    pub fn new(rows: u64, reads: usize, read_writes: usize, theta: f64) -> Ycsb {
        assert!(
            rows > (reads + read_writes) as u64,
            "too few rows for distinct keys"
        );
        Ycsb {
            rows,
            reads,
            read_writes,
            keys: Keys::new(rows, theta),
        }
    }

    /// Loads rows `from..to`; split the range over transactions of a few thousand rows.
    pub fn load<T: KvTxn>(
        &self,
        txn: &mut T,
        rng: &mut Rng,
        from: u64,
        to: u64,
    ) -> Result<(), T::Error> {
        let mut text = [0u8; FIELDS * FIELD_BYTES];
        for key in from..to {
            rng.fill_text(&mut text);
            let text = ascii(&text);
            let mut row = [Cell::Int(key as i64); 1 + FIELDS];
            for (i, cell) in row[1..].iter_mut().enumerate() {
                *cell = Cell::Text(&text[i * FIELD_BYTES..(i + 1) * FIELD_BYTES]);
            }
            txn.insert(USERTABLE, &row)?;
        }
        Ok(())
    }

    /// Draws the next transaction into `params`. Running it again runs the same one.
    pub fn draw(&self, rng: &mut Rng, params: &mut Params) {
        params.keys.clear();
        while params.keys.len() < self.reads + self.read_writes {
            let key = self.keys.draw(rng);
            if !params.keys.contains(&key) {
                params.keys.push(key);
            }
        }
        params.field = 1 + rng.below(FIELDS as u64) as usize;
        rng.fill_text(&mut params.value);
    }

    /// Runs it. Returns the number of bytes read, so that no read can be optimised away.
    pub fn run<T: KvTxn>(&self, txn: &mut T, params: &Params) -> Result<(End, usize), T::Error> {
        let mut bytes = 0;
        for keys in params.keys.chunks(EXPECTED) {
            let mut cells = [[Cell::Null]; EXPECTED];
            let mut named = [&[][..]; EXPECTED];
            for (cell, key) in cells.iter_mut().zip(keys) {
                *cell = [Cell::Int(*key as i64)];
            }
            for (name, cell) in named.iter_mut().zip(&cells) {
                *name = cell;
            }
            txn.expect(USERTABLE, &named[..keys.len()]);
        }
        for (i, &key) in params.keys.iter().enumerate() {
            let key = [Cell::Int(key as i64)];
            let read = txn.get(USERTABLE, &key, |row| {
                (1..=FIELDS)
                    .map(|field| std::hint::black_box(row.bytes(field)).len())
                    .sum::<usize>()
            })?;
            bytes += read.expect("every key was loaded");
            if i >= self.reads {
                let set = [(params.field, Cell::Text(ascii(&params.value)))];
                let found = txn.update(USERTABLE, &key, &set)?;
                assert!(found, "a row that was read is there");
            }
        }
        Ok((End::Commit, bytes))
    }
}

fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the generator makes ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::mirror::Mirror;

    #[test]
    fn ten_distinct_rows_are_read_and_two_written() {
        let ycsb = Ycsb::new(100, 8, 2, 0.9);
        let mut db = Mirror::new(TABLES);
        let mut rng = Rng::new(1);
        ycsb.load(&mut db, &mut rng, 0, 50).unwrap();
        ycsb.load(&mut db, &mut rng, 50, 100).unwrap();
        let mut params = Params::default();
        for _ in 0..50 {
            let before = db.rows[0].clone();
            ycsb.draw(&mut rng, &mut params);
            let (end, bytes) = ycsb.run(&mut db, &params).unwrap();
            assert_eq!((end, bytes), (End::Commit, 1000));
            let changed = before.iter().filter(|(k, v)| db.rows[0][*k] != **v).count();
            assert_eq!(changed, 2);
        }
    }
}
