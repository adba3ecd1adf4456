//! Foreign keys: a row's parent must be there, a parent that goes must have no children.
//!
//! Both sides look at the *newest* committed state, not the snapshot, and meet at a lock on the parent: who inserts a child takes
//! KEY SHARE on the parent's row, who deletes a parent or changes its key holds UPDATE. An optimistic transaction takes no
//! locks: its commit looks at those on the parents when its own records are about to be ordered, and asks its probes again after
//! it has its position. NO ACTION is checked at the end of the statement, or of the transaction where the key is deferred (`deferred`; only of one
//! that locks, or has come from a site: the library's others are not); the other actions are carried out at once, in `cascade`.

use base::cancel::work;
use base::schema::ForeignKey;
use base::{Error, KeyRange, Position, Result, SqlState, Value};
use std::collections::HashMap;
use std::sync::Arc;
use store::{Guard, Record, pin};

use crate::errors::Wanted;
use crate::handle::TableHandle;
use crate::key_values::{
    group_of, key_text, names, newest_with_key, ordered, parent_key, prefix_index, same, values_of,
    values_text,
};
use crate::locks::{LockMode, WaitPolicy};
use crate::probe::{FkProbe, Side, Whole, look_for};
use crate::range::RangeRead;
use crate::stats::Cause;
use crate::stop::{self, Stop};
use crate::txn::Txn;
use crate::writes::Pending;

impl Txn {
    /// A row of `table` was written (`old`: what it replaced): notes the parents that it must have.
    pub(crate) fn note_parents(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        old: Option<&[Value]>,
        new: &[Value],
    ) {
        if table.table.def.foreign_keys.is_empty() {
            return;
        }
        let Some(child) = self.handle_of(table) else {
            return;
        };
        self.references.cascades.references(&child, key, new);
        for (place, fk) in table.table.def.foreign_keys.iter().enumerate() {
            let Some(values) = values_of(new, &fk.columns) else {
                continue;
            };
            if old.is_some_and(|o| {
                fk.columns
                    .iter()
                    .all(|c| same(&o[*c as usize], &new[*c as usize]))
            }) {
                continue;
            }
            self.references.probes.push(FkProbe {
                child: child.clone(),
                place,
                values,
                kind: Side::Parent,
                followed: false,
                now: false,
                written: true,
            });
        }
    }

    /// Notes the parents that a row must have which was there before the foreign keys at these places.
    pub(crate) fn note_existing(&mut self, table: &TableHandle, places: &[usize], row: &[Value]) {
        let Some(child) = self.handle_of(table) else {
            return;
        };
        for &place in places {
            let fk = &table.table.def.foreign_keys[place];
            let Some(values) = values_of(row, &fk.columns) else {
                continue;
            };
            self.references.probes.push(FkProbe {
                child: child.clone(),
                place,
                values,
                kind: Side::Parent,
                followed: false,
                now: false,
                written: false,
            });
        }
    }

    /// Whether a change of this row's columns may concern rows that reference it.
    pub(crate) fn is_referenced_key_changed(
        &self,
        table: &TableHandle,
        old: &[Value],
        new: Option<&[Value]>,
    ) -> bool {
        table.table.referenced_by.iter().any(|(t, place)| {
            let Some(child) = self.schema.catalog.table(*t) else {
                return false;
            };
            let fk = &child.table.def.foreign_keys[*place];
            new.is_none_or(|n| {
                fk.ref_columns
                    .iter()
                    .any(|c| !same(&old[*c as usize], &n[*c as usize]))
            })
        })
    }

    /// The checks at the end of a statement.
    pub(crate) fn check_foreign_keys(&mut self) -> stop::Result<()> {
        self.references.cascades.clear();
        if self.references.probes.is_empty() {
            return Ok(());
        }
        let probes = std::mem::take(&mut self.references.probes);
        let late = self.options.locking || self.references.asked_late;
        let later = |p: &FkProbe| late && !p.now && self.is_deferred(p);
        // Those of earlier statements, which stay when this one is undone.
        let earlier = self.statement.mark.probes.min(probes.len());
        let stay = probes[..earlier].iter().filter(|p| !later(p)).count();
        let (mut later, mut probes): (Vec<FkProbe>, Vec<FkProbe>) =
            probes.into_iter().partition(later);
        let checked = self.check_now(&probes);
        if checked.is_err() {
            later.truncate(earlier - stay);
            probes.truncate(stay);
        }
        self.references.put_off.extend(later);
        // Locks keep the answers true until commit; without locks they are asked again there.
        if !self.options.locking {
            self.references.probes = probes;
        }
        checked
    }

    fn check_now(&mut self, probes: &[FkProbe]) -> stop::Result<()> {
        for p in probes.iter().filter(|p| p.kind == Side::Parent) {
            work(64)?;
            match self.require_parent(p) {
                Err(Stop::Error(e))
                    if e.code() == SqlState::FOREIGN_KEY_VIOLATION && !self.still_asks(p) => {}
                r => r?,
            }
        }
        self.require_no_children(probes)
    }

    /// Those of the checks that were put off which are due now.
    pub(crate) fn check_late_references(&mut self, all: bool) -> stop::Result<()> {
        let put_off = self.references.put_off.take();
        let is_due = |p: &FkProbe| all || !self.is_deferred(p);
        let (mut due, rest): (Vec<FkProbe>, Vec<FkProbe>) = put_off.into_iter().partition(is_due);
        // The transaction may have dropped the table or the key since.
        due.retain(|p| {
            let child = self.handle_of(&p.child);
            child.is_some_and(|c| c.table.def.foreign_keys.iter().any(|f| f.id == p.fk().id))
        });
        let checked = self.check_late(&due);
        self.references.put_off.replace(rest);
        match checked {
            // As those of a statement's end.
            Ok(again) => self.references.probes.extend(again),
            Err(stop) => {
                self.references.put_off.extend(due);
                return Err(stop);
            }
        }
        Ok(())
    }

    /// 23503 where a row references what went.
    fn require_no_children(&mut self, probes: &[FkProbe]) -> stop::Result<()> {
        let Some(p) = self.with_children(probes, Position::MAX)? else {
            return Ok(());
        };
        // The error says that there are some: they count as read.
        if self.tracks_reads() {
            self.children(&p.child, p.place, &p.values)?;
        }
        Err(self.children_error(p).into())
    }

    /// The rows that were written may have gone again since, and parents may have come. A table without an index for its key is read once,
    /// for all rows that have no parent. What the commit of a transaction without locks has to ask again.
    fn check_late(&mut self, due: &[FkProbe]) -> stop::Result<Vec<FkProbe>> {
        self.require_no_children(due)?;
        let optimistic = !self.options.locking;
        loop {
            let mut whole = Whole::new();
            let of_parents = due.iter().filter(|p| p.kind == Side::Children);
            let mut again: Vec<FkProbe> = of_parents.filter(|_| optimistic).cloned().collect();
            for p in due.iter().filter(|p| p.kind == Side::Parent) {
                work(64)?;
                let child = self.handle_of(&p.child).unwrap_or(p.child.clone());
                let index = prefix_index(&child, &p.fk().columns);
                let is_there = |i| self.has_child(&child, p.fk(), i, &p.values, Position::MAX);
                if index.is_some_and(|i| !is_there(i)) {
                    continue;
                }
                match self.require_parent(p) {
                    Err(Stop::Error(e))
                        if e.code() == SqlState::FOREIGN_KEY_VIOLATION && index.is_none() =>
                    {
                        look_for(&mut whole, child, p);
                    }
                    r => {
                        r?;
                        again.extend(optimistic.then(|| p.clone()));
                    }
                }
            }
            match self.first_of(&whole, Position::MAX)? {
                None => return Ok(again),
                // Without an error its parent has come meanwhile: then the others are asked for again.
                Some(p) => self.require_parent(p)?,
            }
        }
    }

    fn is_deferred(&self, p: &FkProbe) -> bool {
        let fk = p.fk();
        self.references.deferred.is(fk.id, fk.deferral)
    }

    /// Whether the row that asks for a parent is still there: one that an earlier statement has written may have gone, or have got another parent.
    fn still_asks(&self, p: &FkProbe) -> bool {
        let child = self.handle_of(&p.child);
        let child = child.filter(|c| p.written && c.storage.id == p.child.storage.id);
        let Some(child) = child else {
            return true;
        };
        let own = self.writes.of(child.storage.id);
        let rows = own.into_iter().flat_map(|w| w.rows.values());
        let mut rows = rows.filter_map(|w| w.row.as_deref());
        rows.any(|row| {
            let row = child.table.layout.row(row);
            let mut pairs = p.fk().columns.iter().zip(&p.values);
            pairs.all(|(c, v)| same(&row.get(*c as usize), v))
        })
    }

    fn require_parent(&mut self, p: &FkProbe) -> stop::Result<()> {
        let fk = p.fk().clone();
        let Some(parent) = self.schema.catalog.table(fk.ref_table).cloned() else {
            return Err(Error::internal("a foreign key references a table that is gone").into());
        };
        let (key, place) = parent_key(&parent, &fk, &p.values)?;
        if self.own_parent(&parent, &key, place) {
            return Ok(());
        }
        let (parent, key, place) = self.newest_parent(&parent, &fk, &p.values, (key, place));
        let guard = pin();
        let found = newest_with_key(&parent, &key, place, Position::MAX, &guard);
        let Some(record) = found.filter(|r| self.writes.get(parent.storage.id, r.key()).is_none())
        else {
            return Ok(self.no_parent(p, &parent, key, place)?);
        };
        if self.options.locking {
            let name = parent.row_lock(record.key());
            let row_key = record.key().to_vec();
            drop(guard);
            self.lock(
                name,
                LockMode::KeyShare,
                WaitPolicy::Wait,
                Wanted::Row(&parent, &row_key),
            )?;
            let guard = pin();
            let still = newest_with_key(&parent, &key, place, Position::MAX, &guard);
            if still.is_none_or(|r| r.key() != row_key) {
                return Ok(self.no_parent(p, &parent, key, place)?);
            }
        }
        Ok(())
    }

    /// A parent as it is now, with the key that is looked for and the place of its index.
    fn newest_parent(
        &self,
        parent: &Arc<TableHandle>,
        fk: &ForeignKey,
        values: &[Value],
        known: (Vec<u8>, usize),
    ) -> (Arc<TableHandle>, Vec<u8>, usize) {
        let now = self.newest_of(parent);
        match parent_key(&now, fk, values) {
            Ok((key, place)) => (now, key, place),
            Err(_) => (parent.clone(), known.0, known.1),
        }
    }

    fn own_parent(&self, parent: &TableHandle, key: &[u8], place: usize) -> bool {
        let Some(w) = self.writes.of(parent.storage.id) else {
            return false;
        };
        if parent.table.def.indexes[place].primary {
            return w.rows.get(key).is_some_and(|p| p.row.is_some());
        }
        let range = KeyRange::prefix(key);
        let index = w.by_index.get(place);
        index.is_some_and(|i| i.range::<[u8], _>(range.bounds()).next().is_some())
    }

    /// The error says that no parent is there, which counts as read.
    fn no_parent(
        &mut self,
        p: &FkProbe,
        parent: &Arc<TableHandle>,
        key: Vec<u8>,
        place: usize,
    ) -> Result<()> {
        if self.tracks_reads() {
            match parent.indexes[place].clone() {
                None => self.reads.absent.push((parent.clone(), key.into())),
                index => {
                    let range = KeyRange::prefix(&key);
                    let read = RangeRead::whole(parent.clone(), index, range);
                    self.reads.ranges.push(read);
                }
            }
        }
        self.parent_error(p, parent)
    }

    fn parent_error(&self, p: &FkProbe, parent: &TableHandle) -> Result<()> {
        self.tells_of_newest();
        let fk = p.fk();
        let def = &p.child.table.def;
        let what = format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            def.name, fk.name
        );
        let detail = format!(
            "Key {} is not present in table \"{}\".",
            key_text(&p.child, fk, &p.values),
            parent.name()
        );
        Err(Error::new(SqlState::FOREIGN_KEY_VIOLATION, what)
            .detail(detail)
            .table(&self.namespace_of(&p.child), &def.name)
            .constraint(&fk.name))
    }

    /// The first of the parents that went which has children in the newest state below `me` that this transaction does not take away.
    /// A table without an index for its key is read once, for all parents.
    fn with_children<'p>(
        &self,
        probes: &'p [FkProbe],
        me: Position,
    ) -> Result<Option<&'p FkProbe>> {
        let mut whole = Whole::new();
        for p in probes.iter().filter(|p| p.kind == Side::Children) {
            work(64)?;
            let fk = p.fk();
            let Some(parent) = self.schema.catalog.table(fk.ref_table) else {
                continue;
            };
            // The key may be there again (NO ACTION looks at the statement's end only).
            let (key, place) = parent_key(parent, fk, &p.values)?;
            if self.own_parent(parent, &key, place) {
                continue;
            }
            let child = self.newest_of(&p.child);
            if let Some(index) = prefix_index(&child, &fk.columns) {
                if self.has_child(&child, fk, index, &p.values, me) {
                    return Ok(Some(p));
                }
                continue;
            }
            look_for(&mut whole, child, p);
        }
        self.first_of(&whole, me)
    }

    /// The first of these whose values a row references, in the newest state below `me`.
    fn first_of<'p>(&self, whole: &Whole<'p>, me: Position) -> Result<Option<&'p FkProbe>> {
        for (child, _, by) in whole {
            let some = by.values().next().expect("one at least");
            if let Some(p) = self.child_of_any(child, some.fk(), by, me)? {
                return Ok(Some(p));
            }
        }
        Ok(None)
    }

    /// Reads the whole table for a row that references one of these.
    fn child_of_any<'p>(
        &self,
        child: &TableHandle,
        fk: &ForeignKey,
        gone: &HashMap<Vec<u8>, &'p FkProbe>,
        me: Position,
    ) -> Result<Option<&'p FkProbe>> {
        let parent_of = |row: &[u8]| {
            let row = child.table.layout.row(row);
            let values: Vec<Value> = fk.columns.iter().map(|c| row.get(*c as usize)).collect();
            let some = !values.iter().any(Value::is_null);
            some.then(|| gone.get(&group_of(&values)).copied())?
        };
        let own = self.writes.of(child.storage.id);
        for p in own.into_iter().flat_map(|w| w.rows.values()) {
            work(64)?;
            if let Some(p) = p.row.as_deref().and_then(parent_of) {
                return Ok(Some(p));
            }
        }
        let guard = pin();
        let mut found = None;
        child.storage.try_for_each(&guard, |r| {
            work(64)?;
            crate::settle::settle_below(r, me);
            let mine = own.is_some_and(|w| w.rows.contains_key(r.key()));
            let live = r.row_at(me.prev(), &guard).filter(|_| !mine);
            found = found.or_else(|| live.and_then(parent_of));
            Ok(())
        })?;
        Ok(found)
    }

    /// A child of these values, by the index at `place`.
    fn has_child(
        &self,
        child: &TableHandle,
        fk: &ForeignKey,
        place: usize,
        values: &[Value],
        me: Position,
    ) -> bool {
        let own = self.writes.of(child.storage.id);
        let matches = |row: &[u8]| {
            let row = child.table.layout.row(row);
            fk.columns
                .iter()
                .zip(values)
                .all(|(c, v)| same(&row.get(*c as usize), v))
        };
        let mut key = Vec::new();
        for (v, k) in ordered(child, place, fk, values)
            .iter()
            .zip(&child.table.keys[place])
        {
            k.encode(v, &mut key);
        }
        let range = KeyRange::prefix(&key);
        if let Some(w) = own {
            // Under another shape of the table its indexes may stand in another order.
            let known = w.table.shape == child.shape;
            let is_child = |p: &Pending| p.row.as_deref().is_some_and(matches);
            let mut by_key = w.rows.range::<[u8], _>(range.bounds());
            let hit = match w.by_index.get(place) {
                _ if !known => w.rows.values().any(is_child),
                _ if child.table.def.indexes[place].primary => by_key.any(|(_, p)| is_child(p)),
                Some(index) => index.range::<[u8], _>(range.bounds()).next().is_some(),
                None => w.rows.values().any(is_child),
            };
            if hit {
                return true;
            }
        }
        let guard = pin();
        let mut found = false;
        let index = child.indexes[place].as_deref();
        crate::range::each_in_range(child, index, &range, &guard, &mut |r, _| {
            crate::settle::settle_below(r, me);
            let live = r.row_at(me.prev(), &guard);
            found = live.is_some_and(matches) && own.is_none_or(|w| !w.rows.contains_key(r.key()));
            !found
        });
        found
    }

    pub(crate) fn children_error(&self, p: &FkProbe) -> Error {
        self.tells_of_newest();
        let fk = p.fk();
        // SET DEFAULT may have left a row of its own at the value that goes.
        let references = |w: &Pending| {
            let row = w.row.as_deref().map(|r| p.child.table.layout.row(r));
            row.is_some_and(|row| {
                let mut pairs = fk.columns.iter().zip(&p.values);
                pairs.all(|(c, v)| same(&row.get(*c as usize), v))
            })
        };
        let own = self.writes.of(p.child.storage.id);
        if p.followed && !own.is_some_and(|w| w.rows.values().any(references)) {
            let what = "could not serialize access: a row that references a changed key was added concurrently";
            return Error::new(SqlState::SERIALIZATION_FAILURE, what)
                .hint("The transaction might succeed if retried.")
                .table(&self.namespace_of(&p.child), p.child.name())
                .constraint(&fk.name);
        }
        let parent = self
            .schema
            .catalog
            .table(fk.ref_table)
            .map(|t| t.name().to_owned())
            .unwrap_or_default();
        let child = p.child.name();
        let what = format!(
            "update or delete on table \"{parent}\" violates foreign key constraint \"{}\" on table \"{child}\"",
            fk.name
        );
        let columns = self
            .schema
            .catalog
            .table(fk.ref_table)
            .map(|t| names(t, &fk.ref_columns))
            .unwrap_or_default();
        let values = values_text(&p.values);
        Error::new(SqlState::FOREIGN_KEY_VIOLATION, what)
            .detail(format!(
                "Key ({columns})=({values}) is still referenced from table \"{child}\"."
            ))
            .table(&self.namespace_of(&p.child), child)
            .constraint(&fk.name)
    }

    /// Before an optimistic commit asks for its position, and after its records say that it will: nobody holds a lock on a parent.
    /// Who has let such a lock go has a position, so that the parent's new state shows below the commit's; who takes one later looks
    /// for children then, and waits for this commit.
    pub(crate) fn check_parents(&self) -> Result<()> {
        let guard = pin();
        for p in self
            .references
            .probes
            .iter()
            .filter(|p| p.kind == Side::Parent)
        {
            let fk = p.fk();
            let Some(parent) = self.schema.catalog.table(fk.ref_table) else {
                continue;
            };
            let (key, place) = parent_key(parent, fk, &p.values)?;
            let holder = std::cell::Cell::new(None);
            let is_held = |r: &Record| {
                let name = parent.row_lock(r.key());
                let locks = &self.shared.locks;
                holder.set(locks.holder(self.id, name, LockMode::KeyShare));
                holder.get().is_some()
            };
            let held = match parent.indexes[place].as_deref() {
                None => parent
                    .storage
                    .primary
                    .get(&key, &guard)
                    .is_some_and(is_held),
                // Also rows that had the key once: an abort too many, at most.
                index => !crate::range::each_in_range(
                    parent,
                    index,
                    &KeyRange::prefix(&key),
                    &guard,
                    &mut |r, _| !is_held(r),
                ),
            };
            if held {
                self.shared.stats.abort(Cause::RowLocked);
                return Err(self.row_is_locked(parent, &values_text(&p.values), holder.get()));
            }
        }
        Ok(())
    }

    /// At an optimistic commit, after it has its position: the probes again, against commits below `me`.
    pub(crate) fn probes_hold(&self, me: Position, guard: &Guard) -> Result<()> {
        for p in &self.references.probes {
            let fk = p.fk();
            let Some(parent) = self.schema.catalog.table(fk.ref_table) else {
                continue;
            };
            let (key, place) = parent_key(parent, fk, &p.values)?;
            let own = self.own_parent(parent, &key, place);
            match p.kind {
                Side::Parent if own => {}
                Side::Parent => {
                    let (parent, key, place) =
                        self.newest_parent(parent, fk, &p.values, (key, place));
                    let found = newest_with_key(&parent, &key, place, me, guard);
                    let found =
                        found.filter(|r| self.writes.get(parent.storage.id, r.key()).is_none());
                    if found.is_none() && self.still_asks(p) {
                        return self.parent_error(p, &parent);
                    }
                }
                Side::Children => {}
            }
        }
        match self.with_children(&self.references.probes, me)? {
            Some(p) => Err(self.children_error(p)),
            None => Ok(()),
        }
    }

    /// For ON CONFLICT and unique errors: where a key of a unique index stands in the newest state.
    pub(crate) fn conflict_in(
        &self,
        table: &TableHandle,
        place: usize,
        key: &[u8],
        row_key: &[u8],
    ) -> Option<Box<[u8]>> {
        let own = self.writes.of(table.storage.id);
        if table.indexes[place].is_none() {
            let guard = pin();
            return match own.and_then(|w| w.rows.get(key)) {
                Some(Pending { row, .. }) => row.as_ref().map(|_| key.into()),
                None => newest_with_key(table, key, place, Position::MAX, &guard)
                    .map(|r| r.key().into()),
            };
        }
        let range = KeyRange::prefix(key);
        if let Some(w) = own {
            let mut same = w.by_index[place].range::<[u8], _>(range.bounds());
            if let Some((_, k)) = same.find(|(_, k)| k[..] != *row_key) {
                return Some(k.clone());
            }
        }
        let guard = pin();
        let mut found = None;
        let index = table.indexes[place].as_deref();
        crate::range::each_in_range(table, index, &range, &guard, &mut |r, entry| {
            crate::settle::settle(r);
            let mine = r.key() == row_key || own.is_some_and(|w| w.rows.contains_key(r.key()));
            let live = r.newest(&guard).and_then(|v| v.row());
            if let (false, Some(row), Some(e), Some(i)) = (mine, live, entry, index)
                && i.matches(e, row, &mut Vec::new())
            {
                found = Some(r.key().into());
            }
            found.is_none()
        });
        found
    }

    pub(crate) fn namespace_of(&self, table: &TableHandle) -> String {
        let ns = self
            .schema
            .catalog
            .schema
            .namespace(table.table.def.namespace);
        ns.map(|n| n.name.clone()).unwrap_or_default()
    }
}
