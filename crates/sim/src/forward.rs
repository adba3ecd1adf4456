//! Transactions that begin at a replica and go on at the primary (docs/replication.md, "One endpoint"): what they have read there travels
//! as a footprint (`txn::moved`), and the node that leads when it arrives, perhaps in another term, takes it or refuses it.
//!
//! What one has read at the replica must stand in the history just before its commit: then all transactions, begun wherever, are as if
//! one ran after the other, in the order of their positions.
//!
//! Left out on purpose: the relay of messages and session state, which is `server`'s; `canon`'s tests have both.

use base::{Footprint, Oid, Position};
use replica::ship::term_at;
use store::pin;
use txn::{Durability, Txn, TxnOptions};

use crate::machine::{Running, table};
use crate::model::Name;
use crate::primary::Primary;
use crate::schema::{QTY, STOCK, TABLE, key, storage};
use crate::values::{self, Change};
use crate::world::{What, World};

/// A row that was read, of a stock its value; none: there was none.
pub type Read = (Name, Option<Vec<u8>>);

/// A transaction that a client has open at a primary.
pub struct Open {
    pub txn: Txn,
    /// What it has read at a replica.
    pub read: Vec<Read>,
    /// What it has done to the stocks.
    pub stock: Vec<Change>,
}

/// On its way to a primary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moving {
    /// Of the history in which it read.
    term: u64,
    footprint: Vec<u8>,
    read: Vec<Read>,
}

pub fn options() -> TxnOptions {
    TxnOptions {
        durability: Durability::On,
        locking: false,
        ..TxnOptions::default()
    }
}

impl World {
    /// A client reads at a replica, and then wants to write.
    pub fn begin_at_replica(&mut self, i: usize) {
        let mut names: Vec<(Oid, i64)> = (0..1 + self.dice.below(3))
            .map(|_| (TABLE, self.dice.below(crate::clients::IDS) as i64))
            .collect();
        if self.config.stocks && self.stock_dice.percent(20) {
            names.push((STOCK, self.stock_dice.below(values::IDS) as i64));
        }
        let begun = self.on_node(i, |_, up| {
            let Running::Follower(f) = up else {
                return None;
            };
            let (at, node) = (f.shown()?, f.node.as_ref()?);
            let tables = [TABLE, STOCK].map(|id| table(node, id));
            let mut t = node.begin(options(), true);
            t.set_read_position(at);
            t.begin_statement().ok()?;
            let guard = pin();
            let read = |&(table, id): &(Oid, i64)| {
                let key = key(id);
                let table = tables.iter().find(|t| t.storage.id == storage(table))?;
                if table.storage.id == storage(STOCK) {
                    let qty = t.get(table, &key, |r| r.get(QTY).as_i64()).ok()?;
                    let qty = qty.flatten().map(|q| q.to_be_bytes().to_vec());
                    return Some(((table.storage.id, key), qty));
                }
                t.get(table, &key, |_| ()).ok()?;
                let record = table.storage.primary.get(&key, &guard);
                let row = record.and_then(|r| r.row_at(at, &guard).map(<[u8]>::to_vec));
                Some(((table.storage.id, key), row))
            };
            let read: Option<Vec<Read>> = names.iter().map(read).collect();
            let footprint = t.reads().ok()??.encode_reads();
            let term = term_at(&node.terms(), Position::MAX);
            let moving = Moving {
                term,
                footprint,
                read: read?,
            };
            Some((f.target, moving))
        });
        if let Some((to, moving)) = begun.flatten() {
            self.say(|| format!("a transaction moves from node {i} to node {to}"));
            let late = self.dice.percent(10);
            let delay = 100 + self.dice.below(if late { 60_000 } else { 900 });
            self.later(delay, What::Move(i, to, moving));
        }
    }

    /// It arrives at a primary, and writes.
    pub fn moves_in(&mut self, from: usize, to: usize, moving: Moving) {
        if !self.net.reaches(from, to) {
            return;
        }
        self.on_node(to, |w, up| {
            let Running::Primary(p) = up else { return };
            if p.is_sealing() || p.open.len() > 5 {
                return;
            }
            match w.adopt(p, &moving) {
                Some((txn, stock)) => p.open.push(Open {
                    txn,
                    read: moving.read,
                    stock,
                }),
                None => w.report.refused += 1,
            }
        });
    }

    fn adopt(&mut self, p: &Primary, moving: &Moving) -> Option<(Txn, Vec<Change>)> {
        let footprint = Footprint::decode_reads(&moving.footprint).expect("just encoded");
        let at = footprint.snapshot;
        // As a token (`sql::session::token`): good up to where the next term began.
        let next = p.terms.iter().find(|(term, _)| *term > moving.term);
        let known = moving.term <= p.term && next.is_none_or(|(_, start)| at <= *start);
        if !known && !env::fault::planted("forward.another_history") {
            return None;
        }
        let mut t = p.node.begin(options(), false);
        t.adopt_reads(&footprint).ok()?;
        self.write_some(p, &mut t, 2).ok()?;
        let stock = match self.config.stocks {
            true => self.change_stocks(p, &mut t).ok()?,
            false => Vec::new(),
        };
        Some((t, stock))
    }

    /// A transaction has committed at `at`.
    pub fn check_moved(&mut self, i: usize, p: &Primary, at: Position, read: &[Read]) {
        if read.is_empty() {
            return;
        }
        self.report.moved += 1;
        self.say(|| format!("node {i}: what moved there commits at {at}"));
        let before = self.model.rows(&p.terms, at.prev());
        let values = self.model.values(&p.terms, at.prev());
        let value = |k: &[u8]| {
            let mut all = values.iter();
            let found = all.find(|v| key(*v.0) == k)?;
            Some(found.1.to_be_bytes().to_vec())
        };
        for (name, row) in read {
            let stood = match name.0 == storage(STOCK) {
                true => value(&name.1),
                false => before.get(name).cloned(),
            };
            assert!(
                stood == *row,
                "what committed at {at} at node {i} had read {row:?} under {name:?} at a replica, but before it stood {stood:?}"
            );
        }
    }
}
