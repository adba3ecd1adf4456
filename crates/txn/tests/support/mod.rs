//! What the tests of commits share: columns, indexes, and an order of commits in memory.
#![allow(dead_code)] // Each test program uses its part.

use base::schema::*;
use base::{Oid, Position, Result, RowRef, Type, Value, Watermarks};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use txn::CommitOrder;

pub fn column(name: &str, ty: Type) -> Column {
    Column::new(name, ty.into())
}

pub fn index(id: Oid, name: &str, column: u16, unique: bool, primary: bool) -> Index {
    Index {
        id,
        name: name.into(),
        columns: vec![IndexColumn {
            column,
            desc: false,
            nulls_first: false,
        }],
        unique,
        primary,
        constraint: unique,
        constraint_oid: 0,
        nulls_not_distinct: false,
        predicate: None,
        include: vec![],
        deferral: base::schema::Deferral::Never,
        late_primary: false,
    }
}

/// The order of commits in memory: *installed* passes a position when every position below is installed or given up.
pub struct MemoryOrder {
    pub marks: Arc<Watermarks>,
    pub given: Mutex<Given>,
}

pub struct Given {
    pub next: Position,
    pub open: BTreeSet<u64>,
    pub refuse: bool,
}

impl MemoryOrder {
    /// Gives positions above `start`, where the watermarks stand.
    pub fn after(start: Position) -> MemoryOrder {
        MemoryOrder {
            marks: Arc::new(Watermarks::new(start)),
            given: Mutex::new(Given {
                next: start.next(),
                open: BTreeSet::new(),
                refuse: false,
            }),
        }
    }

    fn done(&self, ticket: u64) {
        let mut given = self.given.lock();
        given.open.remove(&ticket);
        let to = match given.open.first() {
            Some(first) => Position::from_u64(*first).prev(),
            None => given.next.prev(),
        };
        self.marks.show(to);
    }
}

impl CommitOrder for MemoryOrder {
    fn wait_for_room(&self, _: &dyn Fn() -> Result<()>) -> Result<()> {
        Ok(())
    }

    fn begin(&self) -> Result<(Position, u64)> {
        let mut given = self.given.lock();
        if given.refuse {
            let what = "no positions are given";
            return Err(base::Error::new(base::SqlState::DISK_FULL, what));
        }
        let position = given.next;
        given.next = position.next();
        given.open.insert(position.as_u64());
        Ok((position, position.as_u64()))
    }

    fn ready(&self, ticket: u64, _heads: Vec<u8>, _data: Vec<u8>) {
        self.done(ticket);
    }

    fn abort(&self, ticket: u64) {
        self.done(ticket);
    }
}

pub fn key(id: i64) -> Vec<u8> {
    let mut k = vec![];
    base::key::encode_value(&Value::Int8(id), &mut k);
    k
}

/// A row, all of whose columns are int8 and not NULL.
pub type Row = Vec<i64>;

pub fn ints(row: RowRef<'_>) -> Row {
    let values = row.values();
    values.iter().map(|v| v.as_i64().unwrap()).collect()
}
