//! Split values: deltas of hot numbers that never conflict, with their bounds kept.
//!
//! `UPDATE stock SET qty = qty - 1 WHERE id = 7 AND qty >= 1` does not need to know `qty`; it needs to know that there is one left, and that
//! one is taken away at the commit. So it is kept as a *delta*:
//!
//! ```text
//! statement   lock the row in mode Delta, beside other deltas     reserve what is needed (escrow)     note the delta in the write set
//! commit      lock the record, add the delta to its newest version, push                              give the reservation back
//! ```
//! The record is locked before a position is taken, so the newest version plus the delta is final: two deltas of a row never conflict, at
//! any isolation level. The log, replicas and checkpoints see finished rows and know nothing of deltas.
//!
//! A changed row stands in the write set as the transaction sees it: its snapshot's values plus its own deltas. At another snapshot the row
//! is made anew when it is read (`Txn::refresh_moved`). A delta is exact at every level in what it does. What it *says* (the guard was true) is
//! kept so:
//!
//! | level | a guard, and the bounds |
//! |---|---|
//! | READ COMMITTED | hold for the newest committed value while the statement runs |
//! | REPEATABLE READ | and for the snapshot, or the snapshot moves, or 40001 |
//! | SERIALIZABLE | and until the transaction has ended: the reservation stays whole |
//!
//! A value that a transaction both reads and moves is certified at REPEATABLE READ, too: else `SELECT qty` and then `qty - 1` would lose
//! what first-committer-wins protects today.
//!
//! Whatever is no delta (another value, FOR UPDATE, a delete, a change of another column) locks the row in a mode that waits for deltas, and deltas
//! wait for it. Where a reservation does not fit beside those of others, the statement goes that way, too ([`Outcome::Exact`]).
//!
//! A hot value has further records beside its row ([`records`]); escrow is of their sum. The mode `rows` ([`rows`]) has neither merging nor
//! escrow: it is what the default is measured against.

pub(crate) mod delta;
pub(crate) mod escrow;
pub(crate) mod heat;
pub(crate) mod records;
pub(crate) mod rows;
pub(crate) mod shares;
pub(crate) mod walk;
mod whole;

use base::split::Units;
use base::{Error, KeyRange, Position, RelId, RowRef, SqlState, Value};
use std::sync::Arc;
use store::{Expired, Guard, Record, pin};

use crate::errors::Wanted;
use crate::handle::{Spread, TableHandle};
use crate::locks::{LockMode, LockName, WaitPolicy};
use crate::manager::TxnManager;
use crate::range::{RangeRead, RowFilter, column_set, same_column, same_shown};
use crate::settle::{settle, settle_below};
use crate::stats::Cause;
use crate::stop::Result;
use crate::txn::{Isolation, Txn};
use crate::writes::{Moved, Pending, Place};
pub use delta::{Delta, Outcome};
use escrow::{Answer, Hold, ValueName};
use shares::{damaged, newest_total, value_of};

/// What a delta comes to at the commit, under the record's lock.
pub(crate) enum Now {
    Row(Pending),
    /// There is no such row, or the value would leave its bounds.
    Gone,
    /// The delta belongs to another record by now.
    Elsewhere,
}

/// The question that a guard asks of a committed row.
struct Bound {
    units: Units,
    column: usize,
    least: i128,
}

impl RowFilter for Bound {
    fn takes(&self, row: RowRef<'_>) -> bool {
        value_of(&self.units, row, self.column).is_none_or(|v| v >= self.least)
    }
}

/// A guard that is not satisfied: the committed value of the column is below `least`.
struct Short {
    column: usize,
    least: i128,
}

/// What became of a statement's deltas of one row.
struct Took {
    outcome: Outcome,
    /// In the mode `rows`, what was taken of which records.
    places: Vec<Place>,
    short: Option<Short>,
}

impl Took {
    fn of(outcome: Outcome) -> Took {
        Took {
            outcome,
            places: vec![],
            short: None,
        }
    }

    fn short(d: &Delta, net: i128) -> Took {
        let short = d.need.map(|need| Short {
            column: d.column,
            least: need - net,
        });
        Took {
            short,
            ..Took::of(Outcome::Refused)
        }
    }
}

/// The net of a column among the deltas of a row.
fn net_of(moved: Option<&Moved>, column: usize) -> i128 {
    let moved = moved.into_iter().flat_map(|m| m.net.iter());
    moved
        .filter(|(c, _)| *c as usize == column)
        .map(|(_, n)| n)
        .sum()
}

/// What running transactions reserve of a value, in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub storage: RelId,
    pub key: Box<[u8]>,
    pub column: u16,
    /// How far below its newest version the value may go, or may not, because of a guard.
    pub down: i128,
    /// How far above.
    pub up: i128,
}

impl TxnManager {
    /// How many values something is reserved of now.
    pub fn reserved_values(&self) -> usize {
        self.escrow.len()
    }

    /// The values of which something is reserved now.
    pub fn reservations(&self) -> Vec<Reservation> {
        let all = self.escrow.all().into_iter();
        let shown = all.map(|(name, sum)| Reservation {
            storage: name.storage,
            key: name.key,
            column: name.column,
            down: sum.down,
            up: sum.up,
        });
        shown.collect()
    }
}

impl TableHandle {
    /// `row` with these deltas added. A value that left its bounds is refused (none), or shown at the bound (`as_seen`). A transaction sees it so
    /// when its snapshot is older than the versions that its deltas count on.
    fn moved_row(
        &self,
        row: RowRef<'_>,
        (net, counts): (&[(u16, i128)], &[(u16, u16)]),
        as_seen: bool,
    ) -> base::Result<Option<Box<[u8]>>> {
        let mut set = Vec::with_capacity(net.len());
        for (column, count) in counts {
            set.push((usize::from(*column), Value::Int2(*count as i16)));
        }
        for (column, net) in net {
            let column = *column as usize;
            let units = self.split(column).ok_or_else(damaged)?;
            let mut value = value_of(units, row, column).ok_or_else(damaged)? + net;
            if as_seen {
                value = value.clamp(units.lower, units.upper);
            } else if !units.allows(value) && !env::fault::planted("split.no_escrow") {
                return Ok(None);
            }
            set.push((column, units.value(value)));
        }
        self.with_columns(row, set).map(Some)
    }

    fn with_columns(
        &self,
        row: RowRef<'_>,
        set: Vec<(usize, base::Value)>,
    ) -> base::Result<Box<[u8]>> {
        let layout = &self.table.layout;
        let version = self.table.def.row_version;
        let mut bytes = Vec::with_capacity(row.bytes().len());
        if !layout.patch(version, row, &set, &mut bytes) {
            let mut values = row.values();
            for (column, value) in set {
                values[column] = value;
            }
            layout.encode(version, &values, &mut bytes)?;
        }
        Ok(bytes.into())
    }
}

/// Whether two versions of a row are the same where an index or a foreign key looks. The write set gets the row of a delta as the snapshot
/// has it, and constraints and scans of indexes believe the write set: these columns have to be what they will be. The lock keeps them.
fn is_bound_same(handle: &TableHandle, a: &[u8], b: &[u8]) -> bool {
    let layout = &handle.table.layout;
    let (a, b) = (layout.row(a), layout.row(b));
    let mut bound = handle.bound.iter();
    bound.all(|c| same_column(a, b, *c as usize))
}

/// Whether the value of a column is at least so much, at a position below which all commits have settled here, or settle while this waits.
fn is_at_least(
    table: &TableHandle,
    key: &[u8],
    (column, least): (u16, i128),
    at: Position,
    guard: &Guard,
) -> bool {
    let column = usize::from(column);
    let value = match table.spread(column) {
        Some(s) => s.total_at(table, key, at, guard),
        None => {
            let record = table.storage.primary.get(key, guard);
            let row = record.and_then(|r| {
                settle_below(r, at.next());
                r.row_at(at, guard)
            });
            let row = row.filter(|r| table.table.layout.knows(r));
            let units = table.split(column);
            units
                .zip(row)
                .and_then(|(u, r)| value_of(u, table.table.layout.row(r), column))
        }
    };
    value.is_some_and(|v| v >= least)
}

impl Txn {
    /// Adds the deltas to the row of this key, which the statement has found by the columns `looked_at` (a set, `column_set`), guards aside.
    /// May fail with BLOCKED or RESTART, as every write.
    pub fn add_to(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        deltas: &[Delta],
        looked_at: u64,
    ) -> Result<Outcome> {
        let took = base::memory::apart(|| self.add_to_row(table, key, deltas, looked_at))?;
        self.shared.stats.delta(took.outcome as usize);
        if let Some(short) = took.short {
            self.read_bound(table, key, short)?;
        }
        Ok(took.outcome)
    }

    fn add_to_row(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        deltas: &[Delta],
        looked_at: u64,
    ) -> Result<Took> {
        let handle = self.for_write(table)?;
        self.shared.store.memory.check()?;
        let own = self.writes.get(handle.storage.id, key);
        let had = match own {
            Some(Pending { moved: None, .. }) => return Ok(Took::of(Outcome::Exact)),
            Some(p) => p.moved.clone(),
            None => None,
        };
        let name = handle.row_lock(key);
        let locks = self.locks.held.len();
        let locked = match self.options.locking {
            true => {
                let wanted = Wanted::Row(&handle, key);
                let locked = self.lock(name, LockMode::Delta, WaitPolicy::Wait, wanted);
                locked.map(drop)
            }
            false => self.lock_at_once(&handle, key, LockMode::Delta),
        };
        let new_lock = self.locks.held.len() > locks;
        if new_lock {
            self.locks.for_deltas.push(name);
        }
        locked?;
        let mut took = self.reserve_all(&handle, key, deltas, had.as_deref(), looked_at)?;
        if took.outcome == Outcome::Done {
            let places = std::mem::take(&mut took.places);
            self.note_moved(&handle, key, (deltas, places), had, looked_at)?;
            return Ok(took);
        }
        // Nothing is taken of the records that an earlier column of the statement has locked, in this run or in one that waited (the mode `rows`).
        self.leave_records(&handle, key, deltas, had.as_deref());
        match (had.is_some(), took.outcome) {
            (true, _) => {}
            (_, Outcome::Refused) => self.leave_row(&handle, key),
            // Two that hold it and want more would wait for each other.
            _ if new_lock => self.unlock(name),
            // It keeps what a guard has said, though the guard's statement was undone.
            _ if self.reserves(&handle, key) => {}
            // A run of this statement that waited has taken it.
            _ => self.shared.locks.weaken_delta(self.id, name),
        }
        Ok(took)
    }

    /// A statement of deltas does nothing to the row: what it has locked of it, in this run or in one before, others may have.
    pub fn leave_row(&mut self, table: &TableHandle, key: &[u8]) {
        // A guard that was told is kept, though its statement was undone.
        if self.writes.get(table.storage.id, key).is_some() || self.reserves(table, key) {
            return;
        }
        let name = table.row_lock(key);
        let locked = &mut self.locks.for_deltas;
        match locked.iter().rposition(|l| *l == name) {
            Some(at) => {
                locked.swap_remove(at);
                self.unlock(name);
            }
            None => self.shared.locks.weaken_delta(self.id, name),
        }
    }

    /// Gives back a lock that was taken lately.
    pub(super) fn unlock(&mut self, name: LockName) {
        let held = &mut self.locks.held;
        if let Some(at) = held.iter().rposition(|h| *h == name) {
            held.remove(at);
        }
        self.shared.locks.release(self.id, name);
    }

    /// Whether the transaction has reserved anything of the values of a row in this storage.
    pub(crate) fn reserves_in(&self, storage: RelId, key: &[u8]) -> bool {
        let table = self.schema.catalog.of_storage(storage);
        !self.escrowed.is_empty() && table.is_none_or(|t| self.reserves(t, key))
    }

    /// Whether the transaction has reserved anything of the row's values.
    fn reserves(&self, handle: &TableHandle, key: &[u8]) -> bool {
        let held = &self.escrowed;
        let mut columns = (0..handle.splits.len()).filter(|c| handle.splits[*c].is_some());
        columns.any(|column| {
            let name = ValueName {
                storage: handle.storage.id,
                column: column as u16,
                key: key.into(),
            };
            held.of(&name) != Hold::NONE
        })
    }

    /// For ON CONFLICT DO UPDATE: adds the deltas to the row that has the primary key of `row`, which is checked as a new row is.
    /// Refused: there is no such row.
    pub fn add_to_conflicting(
        &mut self,
        table: &TableHandle,
        row: &[Value],
        deltas: &[Delta],
    ) -> Result<Outcome> {
        self.check_row(table, row)?;
        let mut key = Vec::new();
        table.primary_key(row, &mut key)?;
        self.add_to(table, &key, deltas, 0)
    }

    /// Reserves for each of the deltas, or takes it from records (the mode `rows`); on another outcome than Done the reservations are as
    /// they were.
    fn reserve_all(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        deltas: &[Delta],
        had: Option<&Moved>,
        looked_at: u64,
    ) -> Result<Took> {
        let mut before = Vec::with_capacity(deltas.len());
        let mut places = vec![];
        for d in deltas {
            let took = match handle.spread(d.column).filter(|s| s.rows.is_some()) {
                Some(s) => self.take_delta(handle, key, (s, d), had, looked_at),
                None => {
                    let name = ValueName {
                        storage: handle.storage.id,
                        column: d.column as u16,
                        key: key.into(),
                    };
                    let mine = self.escrowed.of(&name);
                    let took = self.reserve(handle, &name, mine, d, had, looked_at);
                    before.push((name, mine));
                    took
                }
            };
            match took {
                Ok(took) if took.outcome == Outcome::Done => places.extend(took.places),
                other => {
                    self.restore_escrow(before);
                    return other;
                }
            }
        }
        Ok(Took {
            places,
            ..Took::of(Outcome::Done)
        })
    }

    /// One delta in the mode `rows`.
    fn take_delta(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        (s, d): (&Spread, &Delta),
        had: Option<&Moved>,
        looked_at: u64,
    ) -> Result<Took> {
        let guard = pin();
        let Some((record, seen)) = self.found(handle, key, had, looked_at, &guard)? else {
            return Ok(Took::of(Outcome::Refused));
        };
        let (outcome, places) = self.take_from_records(handle, (key, record, seen), (s, d), had)?;
        if outcome == Outcome::Refused {
            self.tells_of_newest();
            return Ok(Took::short(d, net_of(had, d.column)));
        }
        Ok(Took {
            places,
            ..Took::of(outcome)
        })
    }

    /// The row that the statement has found, as its snapshot has it; none: there is no such row any more. Another transaction may have taken the
    /// row away, or changed what the statement looked at, before the lock was granted.
    fn found<'g>(
        &mut self,
        handle: &'g TableHandle,
        key: &[u8],
        had: Option<&Moved>,
        looked_at: u64,
        guard: &'g Guard,
    ) -> Result<Option<(&'g Record, &'g [u8])>> {
        let at = self.view()?.position();
        let Some(record) = handle.storage.primary.get(key, guard) else {
            return Ok(None);
        };
        let seen = record.row_at(at, guard);
        let live = self.view()?.check();
        live.map_err(|Expired| Txn::snapshot_too_old())?;
        let Some(seen) = seen else {
            return Ok(None);
        };
        if had.is_none() {
            // A commit that passed its look at locks before this one was granted.
            settle(record);
        }
        self.check_looked_at(handle, (record, key), (seen, at), looked_at)?;
        Ok(Some((record, seen)))
    }

    /// [`Stop::Restart`](crate::Stop) where another transaction has changed what the statement looked at, or a constraint looks at.
    fn check_looked_at(
        &mut self,
        handle: &TableHandle,
        (record, key): (&Record, &[u8]),
        (seen, at): (&[u8], Position),
        looked_at: u64,
    ) -> Result<()> {
        let guard = pin();
        let newest = record.newest(&guard).expect("there is an older version");
        let between = (at, newest.position());
        let is_same = newest.position() <= at
            || newest.row().is_some_and(|now| {
                let same = || same_shown(handle, looked_at, key, (seen, now), between, &guard);
                handle.table.layout.knows(now)
                    && (looked_at == 0 || same())
                    && is_bound_same(handle, seen, now)
            });
        if !is_same {
            let text = handle.describe_row(newest.row().unwrap_or(seen));
            self.restart(handle, text, newest.position())?;
        }
        Ok(())
    }

    /// What has to be reserved for the statement, and what of it stays reserved behind it: a guard of a delta at SERIALIZABLE only.
    fn wanted(&self, mine: Hold, net: i128, d: &Delta, units: &Units) -> (Hold, Hold) {
        let after = mine.max(Hold::of(net + d.amount));
        let guard = d.need.map_or(0, |n| (n - units.lower - net).max(0));
        let want = after.max(Hold {
            guard,
            ..Hold::NONE
        });
        match self.options.isolation {
            Isolation::Serializable => (want, want),
            _ => (want, after),
        }
    }

    fn reserve(
        &mut self,
        handle: &TableHandle,
        name: &ValueName,
        mine: Hold,
        d: &Delta,
        had: Option<&Moved>,
        looked_at: u64,
    ) -> Result<Took> {
        let key = &*name.key;
        let units = *handle.split(d.column).ok_or_else(damaged)?;
        let layout = &handle.table.layout;
        let guard = pin();
        let Some((record, seen)) = self.found(handle, key, had, looked_at, &guard)? else {
            return Ok(Took::of(Outcome::Refused));
        };
        let exact = || Ok(Took::of(Outcome::Exact));
        let net = net_of(had, d.column);
        let (want, keep) = self.wanted(mine, net, d, &units);
        let (mut newest_at, mut largest) = (Position::ZERO, 0);
        let read = || {
            let (total, sum) = newest_total(handle, (record, key), d.column, &units, &guard)?;
            (newest_at, largest) = (sum.newest, sum.largest);
            Some(total)
        };
        let bounds = (units.lower, units.upper);
        // Of other values the first wait begins the watch.
        let spread = handle.spread(d.column);
        let watched = spread.is_some_and(|s| s.min > 0 || s.count(layout.row(seen)) > 0);
        let (escrow, holds) = (&self.shared.escrow, (mine, want, keep));
        let asked = escrow.reserve(name, read, bounds, holds, watched);
        // A numeric NaN has no units.
        let Some((answer, newest, reserved)) = asked else {
            return exact();
        };
        if answer == Answer::Granted {
            self.escrowed.set(name, keep);
        }
        let row = record.newest(&guard).and_then(|v| v.row());
        let further = spread.filter(|s| row.is_some_and(|r| s.count(layout.row(r)) > 0));
        if let Some(spread) = further {
            // A share may come to lie this far from 0. Where that is too far, the value is gathered.
            let reach = largest + reserved.down + reserved.up + d.amount.abs();
            if reach > spread.share_units().upper {
                return exact();
            }
        }
        // What the snapshot says to the same question.
        let shown = match handle.spreads.is_empty() {
            true => None,
            false => self.shown(handle, key, layout.row(seen))?,
        };
        let seen = layout.row(shown.as_deref().unwrap_or(seen));
        // The value was NaN then: the exact write looks again.
        let Some(seen) = value_of(&units, seen, d.column).map(|v| v + net) else {
            return exact();
        };
        let enough = |value: i128| d.need.is_none_or(|n| value >= n);
        let fits = |value: i128| enough(value) && units.allows(value + d.amount);
        let is_known = match (self.options.isolation, answer) {
            // Shares that are read one after the other may have a subtraction and lack an addition of before. That is no state
            // of the value. The statement is told that there is too little when its snapshot says so, too.
            (Isolation::ReadCommitted, Answer::Short) => {
                further.is_none() || enough(newest + net) || !enough(seen)
            }
            (Isolation::ReadCommitted, _) => true,
            (_, Answer::Busy) => return exact(),
            (_, answer) => {
                let now = answer == Answer::Granted || fits(newest + net);
                fits(seen) == now && enough(seen) == enough(newest + net)
            }
        };
        if !is_known {
            let text = row.map_or_else(|| "(row)".into(), |r| handle.describe_row(r));
            self.restart(handle, text, newest_at)?;
        }
        if self.options.isolation == Isolation::ReadCommitted
            && answer == Answer::Granted
            && !fits(seen)
        {
            self.escrowed.lives_off = self.escrowed.lives_off.max(newest_at);
            self.tells_of_newest();
        }
        match answer {
            Answer::Granted => Ok(Took::of(Outcome::Done)),
            Answer::Busy => exact(),
            // Too little for the guard: no row. Too little for the bounds: the exact write says which constraint it breaks.
            Answer::Short if !enough(newest + net) => {
                self.tells_of_newest();
                Ok(Took::short(d, net))
            }
            Answer::Short => exact(),
        }
    }

    /// That a guard is not satisfied says one thing of the value: that it is below `least`. So much counts as read, and a change that leaves it
    /// below is no conflict.
    fn read_bound(&mut self, table: &TableHandle, key: &[u8], short: Short) -> Result<()> {
        if !self.tracks_reads() {
            return Ok(());
        }
        let Some(owner) = self.handle_of(table) else {
            return Ok(());
        };
        let Short { column, least } = short;
        let name = ValueName {
            storage: owner.storage.id,
            column: column as u16,
            key: key.into(),
        };
        let known = self.reads.bounds.get(&name);
        if known.is_some_and(|known| known.0 <= least) {
            return Ok(());
        }
        self.reads
            .bounds
            .insert(name, (least, self.reads.ranges.len()));
        let bound: Arc<dyn RowFilter> = Arc::new(Bound {
            units: *owner.split(column).ok_or_else(damaged)?,
            column,
            least,
        });
        let columns = column_set(&[column as u16]);
        let range = KeyRange::prefix(key);
        if let Some(s) = owner.spread(column) {
            let mut further = RangeRead::whole(s.table.clone(), None, range.clone());
            further.filter = Some(bound.clone());
            self.reads.ranges.push(further);
        }
        let mut row = RangeRead::whole(owner, None, range);
        (row.columns, row.filter) = (columns, Some(bound));
        self.reads.ranges.push(row);
        Ok(())
    }

    /// The write set has the deltas, and the row as the transaction sees it from here on.
    fn note_moved(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        (deltas, new): (&[Delta], Vec<Place>),
        had: Option<Box<Moved>>,
        looked_at: u64,
    ) -> Result<()> {
        let found_by = self.found_by(handle, key, had.as_deref(), looked_at)?;
        let (mut moved, mut needs, mut places): (Vec<(u16, i128)>, Vec<_>, Vec<_>) = had
            .map_or_else(Default::default, |m| {
                (m.net.into(), m.needs.into(), m.places.into())
            });
        rows::add_places(&mut places, new);
        for d in deltas {
            if let Some(need) = d.need {
                // A guard looks at the value with the transaction's own deltas.
                let own = moved.iter().find(|m| m.0 as usize == d.column);
                let need = need - own.map_or(0, |m| m.1);
                match needs.iter_mut().find(|n| n.0 as usize == d.column) {
                    Some(n) => n.1 = need.max(n.1),
                    None => needs.push((d.column as u16, need)),
                }
            }
            match moved.iter_mut().find(|m| m.0 as usize == d.column) {
                Some(m) => m.1 += d.amount,
                None => moved.push((d.column as u16, d.amount)),
            }
        }
        let (row, saw) = self.moved_at_snapshot(handle, key, &moved)?;
        let moved = Moved {
            net: moved.into(),
            places: places.into(),
            needs: needs.into(),
            counts: [].into(),
            found_by,
            at: self.view()?.position(),
        };
        self.put_moved(handle, key, row, saw, moved);
        Ok(())
    }

    /// The row at the snapshot with the deltas, and the position of the snapshot's version. 40001 where the table's schema has changed since
    /// the deltas were made, and the row with it.
    pub(crate) fn moved_at_snapshot(
        &self,
        handle: &TableHandle,
        key: &[u8],
        net: &[(u16, i128)],
    ) -> base::Result<(Box<[u8]>, Position)> {
        let guard = pin();
        let view = self.view()?;
        let record = handle.storage.primary.get(key, &guard);
        let version = record.and_then(|r| r.at(view.position(), &guard));
        let row = version.and_then(|v| v.row());
        view.check().map_err(|Expired| Txn::snapshot_too_old())?;
        let known = row.filter(|r| handle.table.layout.knows(r));
        if let (Some(row), Some(version)) = (known, version) {
            let layout = &handle.table.layout;
            let summed = match handle.spreads.is_empty() {
                true => None,
                false => self.shown(handle, key, layout.row(row))?,
            };
            let mut row = handle.moved_row(
                layout.row(summed.as_deref().unwrap_or(row)),
                (net, &[]),
                true,
            )?;
            if let (Some(_), Some(made)) = (&summed, &row) {
                // It has the sums: nothing is to be added to it when it is read.
                let counts = handle.spreads.iter().map(|s| (s.count, Value::Int2(0)));
                row = Some(handle.with_columns(layout.row(made), counts.collect())?);
            }
            return Ok((row.ok_or_else(damaged)?, version.position()));
        }
        if handle.storage.shape() != handle.shape {
            self.shared.stats.abort(Cause::SchemaChanged);
            return Err(self.schema_moved(Some(handle)));
        }
        Err(Error::internal("a row with deltas is gone"))
    }

    /// Before a row of the write set is read: if it changes by deltas, it is shown as it is at the snapshot.
    #[inline]
    pub(crate) fn refresh_moved(&mut self, storage: RelId, key: &[u8]) -> base::Result<()> {
        match self.writes.has_moved() {
            true => self.refresh_stale(storage, key),
            false => Ok(()),
        }
    }

    fn refresh_stale(&mut self, storage: RelId, key: &[u8]) -> base::Result<()> {
        let at = self.view()?.position();
        let Some((table, moved)) = self.writes.stale(storage, key, at) else {
            return Ok(());
        };
        let now = self.moved_at_snapshot(&table.table, key, &moved.net)?;
        self.writes.refresh(storage, key, now, at);
        Ok(())
    }

    /// At the commit, under the record's lock: the newest version with the deltas. The row lock keeps the row from going.
    pub(crate) fn moved_now(
        &self,
        table: &TableHandle,
        record: &Record,
        change: &Pending,
        guard: &Guard,
    ) -> Now {
        let (Some(moved), Some(newest)) = (&change.moved, record.newest(guard)) else {
            return Now::Gone;
        };
        let further = table.records_of.is_some();
        let mut found = newest.row();
        if further && env::fault::planted("split.removed_record") {
            found = found.or_else(|| newest.older(guard)?.row());
        }
        let Some(mut row) = found else {
            return match further {
                true => Now::Elsewhere,
                false => Now::Gone,
            };
        };
        // In the mode `rows` the row is a record as the others are.
        let here = |s: &Spread| s.rows.is_some() || s.count(table.table.layout.row(row)) == 0;
        let columns = moved.net.iter().map(|(c, _)| usize::from(*c));
        let mut spreads = columns.filter_map(|c| table.spread(c));
        if !table.table.layout.knows(row) {
            return Now::Gone;
        }
        if !spreads.all(here) && !env::fault::planted("split.removed_record") {
            return Now::Elsewhere;
        }
        if env::fault::planted("split.stale_value") {
            // The planted bug: the value of the snapshot is taken for the newest.
            let at = self.view().map(|v| v.position());
            row = at
                .ok()
                .and_then(|at| record.row_at(at, guard))
                .unwrap_or(row);
        }
        let row = table.table.layout.row(row);
        let Ok(Some(row)) = table.moved_row(row, (&moved.net, &moved.counts), false) else {
            return Now::Gone;
        };
        Now::Row(Pending {
            row: Some(row),
            saw: newest.position(),
            existed: true,
            kept: None,
            moved: Some(moved.clone()),
        })
    }

    /// Whether the transaction has read a column of the row, by key or in a range.
    pub(crate) fn has_read(
        &self,
        table: &TableHandle,
        record: &Record,
        columns: u64,
        guard: &Guard,
    ) -> base::Result<bool> {
        let mut read = false;
        let by_key = self.view()?.all(guard, |r, _, looked| {
            read |= std::ptr::eq(r, record) && looked & columns != 0;
            !read
        });
        by_key.map_err(|Expired| Txn::snapshot_too_old())?;
        // A range of a secondary index is taken to have the row in it.
        let in_range = self.reads.ranges.iter().any(|r| {
            r.table.storage.id == table.storage.id
                && r.columns & columns != 0
                && (r.index.is_some() || r.range.contains(record.key()))
        });
        Ok(read || in_range)
    }

    /// A savepoint undoes what was done since the mark. What guards of deltas have said of values is told all the same.
    pub(crate) fn keep_guards(&mut self, mark: usize) {
        if !self.writes.has_moved() || !self.tracks_reads() {
            return;
        }
        for (table, key, moved) in self.writes.moved_since(mark) {
            for &(column, least) in &moved.needs {
                let name = ValueName {
                    storage: table.storage.id,
                    column,
                    key: key.into(),
                };
                let known = self.reads.told.entry(name);
                let known = known.or_insert_with(|| (table.clone(), least));
                known.1 = known.1.max(least);
            }
        }
    }

    /// Whether what the guards of its deltas said is so at a position, too. Below SERIALIZABLE no reservation keeps it.
    pub(crate) fn guards_hold(&self, at: Position, guard: &Guard) -> bool {
        if !self.writes.has_moved() {
            return true;
        }
        self.broken_guard(at, guard).is_none()
            && self.writes.tables.iter().all(|t| {
                t.rows.iter().all(|(key, p)| {
                    let mut needs = p.moved.iter().flat_map(|m| m.needs.iter());
                    needs.all(|need| is_at_least(&t.table, key, *need, at, guard))
                })
            })
    }

    /// The table of a guard that was told, whose deltas are undone, and that does not hold at this position.
    pub(crate) fn broken_guard(&self, at: Position, guard: &Guard) -> Option<&Arc<TableHandle>> {
        let mut told = self.reads.told.iter();
        let broken = told.find(|(name, (table, least))| {
            !is_at_least(table, &name.key, (name.column, *least), at, guard)
        });
        broken.map(|(_, (table, _))| table)
    }

    /// Holds of these values what was held before.
    fn restore_escrow(&mut self, before: Vec<(ValueName, Hold)>) {
        for (name, keep) in before {
            let held = self.escrowed.set(&name, keep);
            self.shared.escrow.reduce(&name, held, keep);
        }
    }

    /// 55006 where the transaction has deltas of the table: a change of its schema could not bring them under the new one.
    pub(crate) fn check_no_deltas(&self, table: &TableHandle) -> base::Result<()> {
        let own = self.writes.of(table.storage.id);
        if own.is_some_and(|w| w.rows.values().any(|p| p.moved.is_some())) {
            let what = format!(
                "cannot alter table \"{}\" because this transaction has changed split columns of it",
                table.name()
            );
            return Err(Error::new(SqlState::OBJECT_IN_USE, what));
        }
        Ok(())
    }
}
