//! Stocks: a few hot rows with a split column, which clients change by deltas.
//!
//! ```text
//! a transaction     deltas with and without guards, at every isolation level ──▶ open beside others ──▶ commit
//! the model         what its client did (`Change`), by term and position, beside the rows of its record
//! ```
//! So a value is known in two ways. One is the row that the commit made under the record's lock, which goes to the log and to all nodes.
//! The other is the sum of what clients did (`values`), which no lock, no escrow and no row has touched. `invariants/splits.rs` compares the two.
//!
//! In runs with further records a worker gives some to a stock, takes some back, or moves what lies in them (the mode `rows`), beside
//! all that clients do. It changes no value, so the model of values does not hear of it.
//!
//! Left out on purpose: waiting for row locks. A client that would have to wait gives up.

use base::split::Mode;
use base::{Isolation, Position, Value};
use node::splits::balance::Balance;
use txn::{Delta, Outcome, Stop, TableHandle, Txn, TxnOptions};

use crate::forward::options;
use crate::model::Promise;
use crate::primary::{Primary, durability};
use crate::schema::{QTY, key};
use crate::values::{Change, IDS, START, net};
use crate::world::World;

/// How often a statement starts anew, as the server's session does.
const TRIES: usize = 3;

impl World {
    /// How a transaction on stocks runs: at any level, with locks or without. READ COMMITTED always locks.
    pub fn stock_options(&mut self) -> TxnOptions {
        let isolation = match self.stock_dice.below(3) {
            0 => Isolation::ReadCommitted,
            1 => Isolation::RepeatableRead,
            _ => Isolation::Serializable,
        };
        TxnOptions {
            isolation,
            locking: isolation == Isolation::ReadCommitted || self.stock_dice.percent(50),
            ..options()
        }
    }

    /// A few statements that change stocks. What they have done.
    pub fn change_stocks(&mut self, p: &Primary, t: &mut Txn) -> txn::Result<Vec<Change>> {
        let mut done = Vec::new();
        for _ in 0..1 + self.stock_dice.below(3) {
            let id = self.stock_dice.below(IDS) as i64;
            let by = match self.stock_dice.percent(70) {
                true => -1 - self.stock_dice.below(5) as i64,
                false => 1 + self.stock_dice.below(6) as i64,
            };
            let need = (self.stock_dice.percent(50)).then(|| (-by).max(0));
            let set = self.stock_dice.percent(15);
            let mut tries = 0;
            let changed = loop {
                t.begin_statement()?;
                let ran = change_stock(p, t, (id, by, need, set), &done);
                match ran.and_then(|c| t.end_statement().map(|()| c)) {
                    Err(Stop::Restart) if tries < TRIES => t.rollback_statement(),
                    ran => break ran?,
                }
                tries += 1;
            };
            match changed {
                Ran::Did(change) => done.push(change),
                Ran::TooFew => self.report.too_few += 1,
                Ran::Refused(need) => {
                    self.report.too_few += 1;
                    self.check_refusal(p, t, (id, need.saturating_sub(net(&done, id))));
                }
            }
        }
        Ok(done)
    }

    /// A guard that lets nothing through says that there is too little. Where its statement stood, or in the newest state, that has to be so.
    fn check_refusal(&self, p: &Primary, t: &Txn, (id, least): (i64, i64)) {
        let stood = t.snapshot().expect("a statement has a snapshot");
        let value = |at| self.model.values(&p.terms, at).get(&id).copied();
        let seen = [stood, Position::MAX].map(value);
        let too_few = seen.iter().any(|v| v.is_none_or(|v| v < least));
        assert!(
            too_few,
            "a guard that needs {least} of stock {id} let nothing through, and there was {seen:?}"
        );
    }

    /// At SERIALIZABLE a guard that let a statement through still holds where its transaction commits.
    pub fn check_guards(&mut self, p: &Primary, at: Position, level: Isolation, stock: &[Change]) {
        self.count_changes(stock);
        if level != Isolation::Serializable {
            return;
        }
        let before = self.model.values(&p.terms, at.prev());
        for change in stock {
            let Change::Moved { id, least, .. } = change else {
                continue;
            };
            let made = stock
                .iter()
                .any(|c| matches!(c, Change::Made(i, _) if i == id));
            let (Some(least), false) = (least, made) else {
                continue;
            };
            let value = before.get(id).copied();
            assert!(
                value.is_some_and(|v| v >= *least),
                "a guard let through what needed {least} of stock {id}, and before the commit at {at} there was {value:?}"
            );
        }
    }

    /// A step of the worker, with numbers that chance takes. Now and then it rests between its beginning and what it does.
    pub fn work_on_stocks(&mut self, i: usize, p: &mut Primary) {
        if self.stock_dice.percent(50) && p.worker.is_none() {
            p.worker = self.begin_work(p);
            return;
        }
        let rested = p.worker.take();
        let Some(mut t) = rested.or_else(|| self.begin_work(p)) else {
            return;
        };
        let key = key(self.stock_dice.below(IDS) as i64);
        let to = self.stock_dice.below(6) as u16;
        let balances = self.config.further == Some(Mode::Rows);
        let kinds = if balances { 6 } else { 2 };
        let did = match self.stock_dice.below(kinds) {
            0 => t.spread_value(&p.stock, &key, QTY, to),
            1 => t.gather_value(&p.stock, &key, QTY, to),
            _ => {
                let values = p.node.manager().split_values(false);
                let value = values.iter().find(|v| *v.key == *key);
                let policy = [Balance::Minmax, Balance::Random, Balance::All];
                let policy = policy[self.stock_dice.below(3) as usize];
                match value.and_then(|v| v.shares.as_ref()) {
                    None => return,
                    Some(shares) => {
                        let moves = policy.moves(shares, self.stock_dice.next_u64());
                        t.balance_value(&p.stock, &key, QTY, &moves)
                    }
                }
            }
        };
        if !matches!(did, Ok(true)) {
            return;
        }
        match self.commit(p, t, Promise::Policy, Vec::new()) {
            Ok(at) => {
                self.report.worked += 1;
                self.say(|| format!("node {i}: a worker commits {at}"));
            }
            Err(_) => self.report.aborts += 1,
        }
        self.settled(i, p);
    }

    fn begin_work(&mut self, p: &Primary) -> Option<Txn> {
        let options = TxnOptions {
            isolation: Isolation::ReadCommitted,
            durability: durability(Promise::Policy, false),
            ..TxnOptions::default()
        };
        let mut t = p.node.begin(options, false);
        t.begin_statement().ok().map(|()| t)
    }

    /// The changes of a transaction are committed.
    pub fn count_changes(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Made(..) => {}
                Change::Moved { exact: true, .. } => self.report.exact += 1,
                Change::Moved { .. } => self.report.deltas += 1,
            }
        }
    }
}

/// A stock. Of the column that counts further records a client knows nothing.
fn row(stock: &TableHandle, id: i64, qty: i64) -> Vec<Value> {
    let mut row = vec![Value::Int8(id), Value::Int8(qty)];
    row.resize(stock.table.def.columns.len(), Value::Null);
    row
}

/// What a statement came to.
enum Ran {
    Did(Change),
    /// There are too few for an exact write.
    TooFew,
    /// The guard, which needs so many, let nothing through.
    Refused(i64),
}

/// One statement: `UPDATE stock SET qty = qty + by WHERE id = … AND qty >= need`, or (`set`) the same as a program writes it that reads and
/// then sets; or the INSERT of a stock that is not there.
fn change_stock(
    p: &Primary,
    t: &mut Txn,
    (id, by, need, set): (i64, i64, Option<i64>, bool),
    done: &[Change],
) -> txn::Result<Ran> {
    let (stock, key) = (&p.stock, key(id));
    let found = t.get_columns(stock, &key, txn::column_set(&[0]), |_| ())?;
    if found.is_none() {
        t.insert(stock, &row(stock, id, START))?;
        return Ok(Ran::Did(Change::Made(id, START)));
    }
    let delta = Delta {
        column: QTY,
        amount: by.into(),
        need: need.map(Into::into),
    };
    let outcome = match set {
        true => Outcome::Exact,
        false => t.add_to(stock, &key, &[delta], 0)?,
    };
    let exact = match outcome {
        Outcome::Done => false,
        Outcome::Refused => return Ok(Ran::Refused(need.unwrap_or(i64::MIN))),
        Outcome::Exact => {
            let read = t.get(stock, &key, |r| r.get(QTY).as_i64())?.flatten();
            let read = read.expect("the row is there, and NOT NULL");
            if read + by < 0 || need.is_some_and(|n| read < n) {
                return Ok(Ran::TooFew);
            }
            t.update(stock, &key, &row(stock, id, read + by))?;
            true
        }
    };
    // An exact write is certified by what it has read.
    let least = need.filter(|_| !exact).map(|n| n - net(done, id));
    Ok(Ran::Did(Change::Moved {
        id,
        by,
        least,
        exact,
    }))
}
