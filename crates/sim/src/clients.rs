//! Clients: they write at whoever takes writes, read anywhere, and never go back in time.

use base::{Position, Value};
use txn::Txn;

use crate::forward::{Open, options};
use crate::machine::Running;
use crate::model::{Promise, Terms};
use crate::primary::{Primary, durability};
use crate::schema::key;
use crate::values::Change;
use crate::world::{NODES, World};

/// What a client has seen.
#[derive(Default)]
pub struct Session {
    /// It has read at this position ...
    pub token: Position,
    /// ... of this history.
    pub seen: Terms,
}

/// Rows are few, so that writes meet.
pub const IDS: u64 = 14;

impl World {
    /// A client does something; the node where.
    pub fn client(&mut self, k: usize) -> Option<usize> {
        let i = self.dice.below(NODES as u64) as usize;
        let write = self.writing && self.dice.percent(70);
        let leaders: Vec<usize> = (0..NODES)
            .filter(|j| self.machines[*j].primary().is_some_and(|p| !p.is_sealing()))
            .filter(|j| !self.stands_still(*j))
            .collect();
        let at_site = if self.sites.on { 80 } else { 40 };
        if write && !leaders.contains(&i) && self.dice.percent(at_site) {
            if self.stands_still(i) {
                return Some(i);
            }
            match self.sites.on {
                true => self.act_at_site(i),
                false => self.begin_at_replica(i),
            }
            return Some(i);
        }
        if write && !leaders.is_empty() {
            let at = self.dice.below(leaders.len() as u64) as usize;
            let i = leaders[at];
            self.on_node(i, |w, up| {
                if let Running::Primary(p) = up {
                    w.write(i, p);
                }
            });
            return Some(i);
        }
        if !self.writing {
            // Who has a transaction open ends it.
            self.leave_sites();
            for j in leaders {
                self.on_node(j, |_, up| {
                    if let Running::Primary(p) = up {
                        p.open.clear();
                        p.worker = None;
                    }
                });
            }
        }
        match self.dice.below(100) {
            0..=39 => self.read_strongly(i),
            55..=79 if self.config.leases => self.read_strongly(i),
            _ if self.stands_still(i) => {}
            40..=54 => self.begin_holding(i),
            _ => self.read(k, i),
        }
        Some(i)
    }

    fn write(&mut self, i: usize, p: &mut Primary) {
        if self.config.further.is_some() && self.stock_dice.percent(20) {
            self.work_on_stocks(i, p);
        }
        if p.open.len() < 3 && self.dice.percent(60) {
            if let Ok((txn, stock)) = self.transaction(p) {
                let read = Vec::new();
                p.open.push(Open { txn, read, stock });
            }
            return;
        }
        if p.open.is_empty() {
            return;
        }
        let which = self.dice.below(p.open.len() as u64) as usize;
        let Open {
            txn: mut t,
            read,
            stock,
        } = p.open.swap_remove(which);
        let (promise, apply) = match self.dice.below(10) {
            0..=1 if self.config.weak => (Promise::Off, false),
            2..=3 if self.config.weak => (Promise::Local, false),
            4 => (Promise::Policy, true),
            5..=6 if self.config.weak => (Promise::Remote, false),
            _ => (Promise::Policy, false),
        };
        t.set_durability(durability(promise, apply));
        let level = t.isolation();
        match self.commit(p, t, promise, stock.clone()) {
            Ok(Position::ZERO) => {}
            Ok(at) => {
                self.check_guards(p, at, level, &stock);
                self.check_moved(i, p, at, &read);
                self.say(|| format!("node {i} commits {at}, {promise:?}"));
            }
            Err(_) => self.report.aborts += 1,
        }
        self.settled(i, p);
    }

    /// A transaction with its reads and writes done.
    fn transaction(&mut self, p: &Primary) -> txn::Result<(Txn, Vec<Change>)> {
        if self.config.stocks && self.stock_dice.percent(40) {
            let mut t = p.node.begin(self.stock_options(), false);
            let stock = self.change_stocks(p, &mut t)?;
            return Ok((t, stock));
        }
        let mut t = p.node.begin(options(), false);
        // Now and then a large one, which replay cuts in pieces.
        let rows = match self.dice.percent(10) {
            true => 12,
            false => 1 + self.dice.below(4),
        };
        self.write_some(p, &mut t, rows)?;
        Ok((t, Vec::new()))
    }

    /// A statement that reads and writes this many rows.
    pub fn write_some(&mut self, p: &Primary, t: &mut Txn, rows: u64) -> txn::Result<()> {
        t.begin_statement()?;
        let table = p.table.clone();
        for _ in 0..rows {
            let id = self.dice.below(IDS) as i64;
            let row = [Value::Int8(id), Value::Int8(self.dice.below(50) as i64)];
            let there = t.get(&table, &key(id), |_| ())?.is_some();
            match self.dice.below(10) {
                0..=1 if there => drop(t.delete(&table, &key(id))?),
                _ if there => t.update(&table, &key(id), &row)?,
                _ => t.insert(&table, &row)?,
            }
        }
        t.end_statement()
    }

    fn read(&mut self, k: usize, i: usize) {
        let at = match &self.machines[i].up {
            Some(Running::Primary(p)) => p.shown(),
            Some(Running::Follower(f)) => f.shown(),
            None => None,
        };
        let (Some(at), Some(terms)) = (at, self.terms_of(i)) else {
            return;
        };
        if at < self.sessions[k].token {
            // It would wait for its token.
            return;
        }
        self.report.reads += 1;
        self.say(|| format!("session {k} reads at node {i}, at {at}"));
        self.check_session(k, i, at, &terms);
        self.sessions[k] = Session {
            token: at,
            seen: terms,
        };
    }
}
