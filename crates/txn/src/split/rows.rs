//! The mode `rows`, which is the thesis's own way (§4.3): the records of a value are ordinary rows, and the first committer wins.
//!
//! ```text
//! statement   lock the row in mode Delta, as in the other mode     choose a record, lock it, read it again     walk on until the amount is collected
//! commit      each record that was taken from is one written row, certified by the version that was read
//! ```
//! Nothing is reserved and nothing is merged. A record is locked until the transaction ends, so two deltas of one record queue. At
//! REPEATABLE READ and SERIALIZABLE a record with a version above the snapshot is met as any such row is: the snapshot moves, or 40001.
//! Bounds are those of the records ([`Parts`](super::walk::Parts)), so it matters where the value lies: [`Txn::balance_value`] is the step
//! of the worker that moves it.
//!
//! Reads, exact writes, the hidden table and the worker that gives and takes records are those of the other mode. An exact write excludes
//! deltas by the row's lock, so under a lock in mode Delta no record goes.
//!
//! Record 0 is the share in the row. Its lock is the name that a further record of the number 0 would have, so that deltas of the
//! row's other columns go on beside it.
//!
//! Left out on purpose: a new choice where a record is locked. The thesis waits, too.

use base::{Position, RowRef, Value};
use store::{Guard, Record, pin};

use super::delta::{Delta, Outcome};
use super::escrow::ValueName;
use super::shares::{damaged, value_of};
use super::walk::{Limits, Step, Walk, mix};
use crate::backoff::Backoff;
use crate::errors::Wanted;
use crate::handle::{Spread, TableHandle};
use crate::locks::{Attempt, LockMode, LockName, WaitPolicy};
use crate::settle::settle;
use crate::stats::Cause;
use crate::stop::{Result, Stop};
use crate::txn::{Isolation, Txn};
use crate::writes::{Moved, Place};

/// A record of a value in the mode `rows`: its share, and how far that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub share: i128,
    pub limits: Limits,
}

/// A move between two records of a value; the row is record 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: u16,
    pub to: u16,
    /// At most this much, in units.
    pub amount: i128,
}

/// A record as the transaction that holds its lock has read it.
#[derive(Clone, Copy)]
struct Held {
    share: i128,
    at: Position,
}

impl Txn {
    /// Takes the delta from the records of the value; what is taken of each. The row's lock is held in mode Delta, and `record` is
    /// the row's, and `seen` its version at the snapshot.
    pub(super) fn take_from_records(
        &mut self,
        handle: &TableHandle,
        (key, record, seen): (&[u8], &Record, &[u8]),
        (s, d): (&Spread, &Delta),
        had: Option<&Moved>,
    ) -> Result<(Outcome, Vec<Place>)> {
        let parts = s.rows.expect("asked of a column in this mode");
        let guard = pin();
        let row = record.newest(&guard).and_then(|v| v.row());
        let row = handle.table.layout.row(row.ok_or_else(damaged)?);
        let count = s.count(row);
        let watched = s.min > 0 || count > 0;
        self.shared.escrow.used(&handle.value_name(s, key), watched);
        let own = |n: u16| {
            let places = had.into_iter().flat_map(|m| m.places.iter());
            places
                .filter(|p| usize::from(p.column) == s.column && p.record == n)
                .map(|p| p.amount)
                .sum::<i128>()
        };
        // An exact write has left more in the row than the limits allow: then the others are not free to take what theirs allow.
        for row in [row, handle.table.layout.row(seen)] {
            // Of a numeric NaN the same can be said.
            let share = value_of(&s.units, row, s.column);
            if !share.is_some_and(|share| parts.limits(0).allow(share)) {
                return Ok((Outcome::Exact, vec![]));
            }
        }
        // The record that it has, else a random one. Each run of the statement takes the same one, because locks stay.
        let mine = had.and_then(|m| {
            let mut mine = m.places.iter().rev();
            mine.find(|p| usize::from(p.column) == s.column)
                .map(|p| p.record)
        });
        let random = mix(self.id, self.writes.mark() as u64);
        let start = mine.unwrap_or((random % (u64::from(count) + 1)) as u16);
        let mut walk = Walk::new(parts, (count, start), d.amount, d.need);
        let mut held = vec![];
        let end = loop {
            match walk.step() {
                Step::Look(n) => {
                    self.lock_record(handle, key, s, n)?;
                    let found = self.read_locked(handle, (key, record), s, n, &guard)?;
                    walk.saw(found.share + own(n));
                    held.push((n, found));
                }
                end => break end,
            }
        };
        match end {
            Step::Done => {
                let place = |(record, amount): &(u16, i128)| {
                    let found = held.iter().find(|h| h.0 == *record).expect("it was seen").1;
                    Place {
                        column: s.column as u16,
                        record: *record,
                        amount: *amount,
                        share: found.share,
                        saw: found.at,
                    }
                };
                let places = walk.taken().iter().map(place).collect();
                Ok((Outcome::Done, places))
            }
            Step::Refused => Ok((Outcome::Refused, vec![])),
            _ => Ok((Outcome::Exact, vec![])),
        }
    }

    /// The statement takes nothing of these columns: the records that it has locked, in all its runs, are free again, because others may want
    /// them before an exact write gets the row. Kept are those that the transaction's deltas have taken from (`had`). Those that have proved a
    /// guard of before are kept at SERIALIZABLE, until the transaction has ended.
    pub(super) fn leave_records(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        deltas: &[Delta],
        had: Option<&Moved>,
    ) {
        let spreads = deltas.iter().filter_map(|d| handle.spread(d.column));
        for s in spreads.filter(|s| s.rows.is_some()) {
            let guard = pin();
            let record = handle.storage.primary.get(key, &guard);
            let row = record.and_then(|r| r.newest(&guard)?.row());
            let count = row.map_or(0, |row| s.count(handle.table.layout.row(row)));
            let column = s.column as u16;
            let guarded = had.is_some_and(|m| m.needs.iter().any(|n| n.0 == column));
            let guarded = guarded && self.options.isolation == Isolation::Serializable;
            let taken = |n: &u16| {
                let mut places = had.into_iter().flat_map(|m| m.places.iter());
                places.any(|p| p.column == column && p.record == *n)
            };
            for n in (0..=count).filter(|n| !taken(n)) {
                let name = s.table.row_lock(&s.key(key, n));
                let locked = &mut self.locks.for_deltas;
                let new = locked.iter().rposition(|l| *l == name);
                if let Some(at) = new {
                    locked.swap_remove(at);
                }
                if new.is_some() || !guarded && self.shared.locks.holds(self.id, name) {
                    self.unlock(name);
                }
            }
        }
    }

    /// Locks one record. [`Stop::Blocked`] where another transaction has it; without locks (the library) 40001.
    fn lock_record(&mut self, handle: &TableHandle, key: &[u8], s: &Spread, n: u16) -> Result<()> {
        let name = s.table.row_lock(&s.key(key, n));
        let locks = self.locks.held.len();
        let wanted = Wanted::Row(handle, key);
        let locked = match self.options.locking {
            true => self.lock(name, LockMode::NoKeyUpdate, WaitPolicy::Wait, wanted),
            false => Ok(self.lock_name_at_once(name)),
        };
        if self.locks.held.len() > locks {
            self.locks.for_deltas.push(name);
        }
        match locked {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(stop) => {
                if matches!(stop, Stop::Blocked) {
                    self.shared.escrow.waited(handle.value_name(s, key));
                }
                return Err(stop);
            }
        }
        let holder = self
            .shared
            .locks
            .holder(self.id, name, LockMode::NoKeyUpdate);
        self.shared.escrow.waited(handle.value_name(s, key));
        self.shared.stats.abort(Cause::RowLocked);
        Err(self.row_is_locked(handle, "(row)", holder).into())
    }

    /// Takes a record's lock if it is free.
    fn lock_name_at_once(&mut self, name: LockName) -> bool {
        let locks = &self.shared.locks;
        let (attempt, new) = locks.acquire(self.id, name, LockMode::NoKeyUpdate, false);
        if new {
            self.locks.held.push(name);
        }
        matches!(attempt, Attempt::Granted)
    }

    /// The newest share of a record that this transaction has locked. [`Stop::Restart`] where it is not that of the snapshot.
    fn read_locked(
        &mut self,
        handle: &TableHandle,
        (key, record): (&[u8], &Record),
        s: &Spread,
        n: u16,
        guard: &Guard,
    ) -> Result<Held> {
        let at = self.view()?.position();
        let mut found = newest_share(handle, (key, record), s, n, guard)?;
        if env::fault::planted("split.rows_stale") {
            // The planted bug: the record is not read again under its lock.
            found.share = self.share_at_snapshot(handle, record, s, (key, n), guard)?;
            return Ok(found);
        }
        let same = found.at <= at
            || n == 0 && {
                // Other columns of the row may have changed.
                let row = record.row_at(at, guard);
                let row = row.filter(|r| handle.table.layout.knows(r));
                let seen =
                    row.and_then(|r| value_of(&s.units, handle.table.layout.row(r), s.column));
                seen == Some(found.share)
            };
        if !same {
            self.shared.escrow.waited(handle.value_name(s, key));
            let row = record.newest(guard).and_then(|v| v.row());
            let text = row.map_or_else(|| "(row)".into(), |r| handle.describe_row(r));
            self.restart(handle, text, found.at)?;
        }
        Ok(found)
    }

    /// A worker's step: moves parts of a value from record to record, all in one commit. Amounts were decided on what the records held a
    /// moment ago; here each is cut to what the records allow now. False where one of the records, or the row, is in use, and where nothing is left to
    /// move.
    pub fn balance_value(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        column: usize,
        moves: &[Move],
    ) -> Result<bool> {
        let handle = self.for_write(table)?;
        let Some((s, parts)) = handle.spread(column).and_then(|s| Some((s, s.rows?))) else {
            return Ok(false);
        };
        if self.writes.get(handle.storage.id, key).is_some()
            || self.lock_at_once(&handle, key, LockMode::Delta).is_err()
        {
            return Ok(false);
        }
        let guard = pin();
        let Some(record) = handle.storage.primary.get(key, &guard) else {
            return Ok(false);
        };
        settle(record);
        let newest = record.newest(&guard);
        let Some((bytes, saw)) = newest.and_then(|v| Some((v.row()?, v.position()))) else {
            return Ok(false);
        };
        let count = s.count(handle.table.layout.row(bytes));
        let mut places: Vec<Place> = vec![];
        for m in moves {
            for n in [m.from, m.to] {
                if n > count || m.from == m.to {
                    return Ok(false);
                }
                if places.iter().any(|p| p.record == n) {
                    continue;
                }
                if !self.lock_name_at_once(s.table.row_lock(&s.key(key, n))) {
                    return Ok(false);
                }
                let mut found = newest_share(&handle, (key, record), s, n, &guard)?;
                if env::fault::planted("split.balance_stale") {
                    // The planted bug: the amount that the step moves off is that of its snapshot.
                    found.share = self.share_at_snapshot(&handle, record, s, (key, n), &guard)?;
                }
                places.push(Place {
                    column: column as u16,
                    record: n,
                    amount: 0,
                    share: found.share,
                    saw: found.at,
                });
            }
            let now = |n: u16| {
                let p = places
                    .iter()
                    .find(|p| p.record == n)
                    .expect("just put there");
                p.share + p.amount
            };
            let free = now(m.from) - parts.limits(m.from).low;
            let room = parts.limits(m.to).high - now(m.to);
            let amount = m.amount.min(free).min(room).max(0);
            for p in &mut places {
                p.amount += i128::from(p.record == m.to) * amount;
                p.amount -= i128::from(p.record == m.from) * amount;
            }
        }
        if places.iter().all(|p| p.amount == 0) {
            return Ok(false);
        }
        let moved = Moved {
            net: [(column as u16, 0)].into(),
            needs: [].into(),
            places: places.into(),
            counts: [].into(),
            found_by: [].into(),
            at: self.view()?.position(),
        };
        self.put_moved(&handle, key, bytes.into(), saw, moved);
        Ok(true)
    }

    /// The share of a record as the snapshot has it, else the newest.
    fn share_at_snapshot(
        &self,
        handle: &TableHandle,
        record: &Record,
        s: &Spread,
        (key, n): (&[u8], u16),
        guard: &Guard,
    ) -> Result<i128> {
        let at = self.view()?.position();
        let further = s.table.storage.primary.get(&s.key(key, n), guard);
        let share = match n {
            0 => record.row_at(at, guard).and_then(|r| {
                let row = handle.table.layout.row(r);
                value_of(&s.units, row, s.column)
            }),
            _ => further
                .and_then(|r| r.row_at(at, guard))
                .and_then(|r| s.share_of(s.table.table.layout.row(r))),
        };
        match share {
            Some(share) => Ok(share),
            None => Ok(newest_share(handle, (key, record), s, n, guard)?.share),
        }
    }
}

/// The newest share of a record whose lock is held. The row's lock keeps the record from going.
fn newest_share(
    handle: &TableHandle,
    (key, record): (&[u8], &Record),
    s: &Spread,
    n: u16,
    guard: &Guard,
) -> base::Result<Held> {
    if n == 0 {
        settle(record);
        let newest = record.newest(guard).ok_or_else(damaged)?;
        let row = handle.table.layout.row(newest.row().ok_or_else(damaged)?);
        return Ok(Held {
            share: value_of(&s.units, row, s.column).ok_or_else(damaged)?,
            at: newest.position(),
        });
    }
    let key = s.key(key, n);
    let mut wait = Backoff::default();
    for _ in 0..1_000_000 {
        let further = s.table.storage.primary.get(&key, guard);
        let newest = further.and_then(|r| {
            settle(r);
            r.newest(guard)
        });
        if let Some((row, at)) = newest.and_then(|v| Some((v.row()?, v.position()))) {
            let share = s.share_of(s.table.table.layout.row(row));
            return Ok(Held {
                share: share.ok_or_else(damaged)?,
                at,
            });
        }
        // A worker is adding the record.
        wait.pause();
    }
    Err(damaged())
}

impl TableHandle {
    /// The name of a value of this table.
    pub(super) fn value_name(&self, s: &Spread, key: &[u8]) -> ValueName {
        ValueName {
            storage: self.storage.id,
            column: s.column as u16,
            key: key.into(),
        }
    }
}

impl Spread {
    /// A share as a number.
    pub(super) fn number(&self, share: i128) -> Value {
        self.share_units().value(share)
    }

    /// The share that a row of the hidden table has.
    pub(super) fn share_of(&self, row: RowRef<'_>) -> Option<i128> {
        value_of(self.share_units(), row, self.share())
    }

    /// The records of a value in the mode `rows` as they are now, the row first; none in the other mode.
    pub(super) fn shares_of(
        &self,
        key: &[u8],
        row: RowRef<'_>,
        guard: &Guard,
    ) -> Option<Vec<Share>> {
        let parts = self.rows?;
        let mut shares = vec![Share {
            share: value_of(&self.units, row, self.column)?,
            limits: parts.limits(0),
        }];
        for n in 1..=self.count(row) {
            let further = self.table.storage.primary.get(&self.key(key, n), guard)?;
            let row = further.newest(guard)?.row()?;
            shares.push(Share {
                share: self.share_of(self.table.table.layout.row(row))?,
                limits: parts.limits(n),
            });
        }
        Some(shares)
    }
}

/// Adds what a delta has taken from records to what deltas before have.
pub(super) fn add_places(all: &mut Vec<Place>, new: Vec<Place>) {
    for n in new {
        let same = |p: &&mut Place| (p.column, p.record) == (n.column, n.record);
        match all.iter_mut().find(same) {
            Some(p) => p.amount += n.amount,
            None => all.push(n),
        }
    }
}
