//! What follows from a change of a referenced row: CASCADE, SET NULL, SET DEFAULT, RESTRICT.
//!
//! ```text
//! delete(root) ──▶ a stack of what is to be followed     Row: each key that references it, in turn
//!                                                         Children: each row that referenced those values
//! ```
//! The actions begin when the statement has done its last write, in the order of the writes. Before, a row that the statement has read and
//! will write still could get a new value by an action, which the write would then put back.
//!
//! Depth first, and without recursion: a chain of a million rows is followed on the stack of one. The rows that reference some values come
//! from an index whose first columns are those of the key. Where there is none, the first question of a statement reads the whole table,
//! and the second one groups its rows by what they reference; the groups answer the others, so that a cascade of n rows reads the table
//! twice, not n times.
//!
//! Groups hold keys only, and say where a row may be: each is looked at as it is now. A row that comes to reference something
//! while the statement runs is added to its group.
//!
//! Left out on purpose: groups that outlive a statement.

use base::cancel::work;
use base::schema::{FkAction, ForeignKey};
use base::{KeyRange, Value};
use std::collections::HashMap;
use std::sync::Arc;

use crate::cascades::{Frame, Grouped, Keyed};
use crate::handle::TableHandle;
use crate::key_values::{group_of, ordered, prefix_index, same, values_of, widen};
use crate::probe::{FkProbe, Side};
use crate::range::ALL_COLUMNS;
use crate::scan::{Access, Direction, Scan};
use crate::stop::Result;
use crate::txn::Txn;

impl Txn {
    /// A row of `table` went (`new` none) or changed its referenced columns: the actions of the keys that reference it are to follow, at
    /// once where the change is such an action itself, else at the end of the statement.
    pub(crate) fn follow_children(
        &mut self,
        table: &TableHandle,
        old: &[Value],
        new: Option<&[Value]>,
    ) {
        let Some(table) = self.handle_of(table) else {
            return;
        };
        let frame = Frame::Row {
            old: self.referenced_of(&table, old),
            new: new.map(|n| self.referenced_of(&table, n)),
            table,
            next: 0,
        };
        let cascades = &mut self.references.cascades;
        match cascades.runs {
            true => cascades.stack.push(frame),
            false => cascades.waiting.push_back(frame),
        }
    }

    /// A row's values in the columns that keys reference, the others NULL.
    fn referenced_of(&self, table: &TableHandle, row: &[Value]) -> Vec<Value> {
        let mut kept = vec![Value::Null; row.len()];
        for (child, place) in &table.table.referenced_by {
            let Some(child) = self.schema.catalog.table(*child) else {
                continue;
            };
            for c in &child.table.def.foreign_keys[*place].ref_columns {
                kept[usize::from(*c)].clone_from(&row[usize::from(*c)]);
            }
        }
        kept
    }

    /// Carries out the actions that wait for the end of the statement.
    pub(crate) fn follow_waiting(&mut self) -> Result<()> {
        self.references.cascades.runs = true;
        let mut done = Ok(());
        while done.is_ok()
            && let Some(frame) = self.references.cascades.waiting.pop_front()
        {
            self.references.cascades.stack.push(frame);
            done = self.follow_all();
        }
        self.references.cascades.runs = false;
        self.references.cascades.stack.clear();
        done
    }

    fn follow_all(&mut self) -> Result<()> {
        while let Some(frame) = self.references.cascades.stack.pop() {
            work(64)?;
            match frame {
                Frame::Row {
                    table,
                    old,
                    new,
                    next,
                } => {
                    let Some(&(child, place)) = table.table.referenced_by.get(next) else {
                        continue;
                    };
                    let children = self.children_of((child, place), &old, new.as_deref())?;
                    self.references.cascades.stack.push(Frame::Row {
                        table,
                        old,
                        new,
                        next: next + 1,
                    });
                    self.references.cascades.stack.extend(children);
                }
                Frame::Children {
                    child,
                    fk,
                    action,
                    mut rows,
                    parent,
                    probe,
                } => {
                    let Some((key, row)) = rows.next() else {
                        self.references.probes.push(probe);
                        continue;
                    };
                    let row = self.as_it_is(&child, &fk, &key, row, &probe.values)?;
                    let changed = (child.clone(), fk.clone(), parent.clone());
                    self.references.cascades.stack.push(Frame::Children {
                        child,
                        fk,
                        action,
                        rows,
                        parent,
                        probe,
                    });
                    let (child, fk, parent) = changed;
                    if let Some(row) = row {
                        self.change_child(&child, &fk, action, &key, &row, parent.as_deref())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What one key that references a row has to do about the row's change.
    fn children_of(
        &mut self,
        (child, place): (base::Oid, usize),
        old: &[Value],
        new: Option<&[Value]>,
    ) -> Result<Option<Frame>> {
        let Some(child) = self.schema.catalog.table(child).cloned() else {
            return Ok(None);
        };
        let fk = &child.table.def.foreign_keys[place];
        let Some(values) = values_of(old, &fk.ref_columns) else {
            return Ok(None);
        };
        if new.is_some_and(|n| {
            fk.ref_columns
                .iter()
                .all(|c| same(&old[*c as usize], &n[*c as usize]))
        }) {
            return Ok(None);
        }
        let action = match new {
            Some(_) => fk.on_update,
            None => fk.on_delete,
        };
        let fk = fk.clone();
        let probe = FkProbe {
            child: child.clone(),
            place,
            values,
            kind: Side::Children,
            followed: !matches!(action, FkAction::NoAction | FkAction::Restrict),
            now: action != FkAction::NoAction,
            written: false,
        };
        if action == FkAction::NoAction {
            self.references.probes.push(probe);
            return Ok(None);
        }
        let rows = self.children(&child, place, &probe.values)?;
        if action == FkAction::Restrict {
            if !rows.is_empty() {
                return Err(self.children_error(&probe).into());
            }
            self.references.probes.push(probe);
            return Ok(None);
        }
        Ok(Some(Frame::Children {
            child,
            fk,
            action,
            rows: rows.into_iter(),
            parent: new.map(<[Value]>::to_vec),
            probe,
        }))
    }

    /// The same where the actions were carried out already, on another node: only the probes are noted.
    pub(crate) fn note_children(
        &mut self,
        table: &TableHandle,
        old: &[Value],
        new: Option<&[Value]>,
    ) {
        for (child_id, place) in &table.table.referenced_by {
            let Some(child) = self.schema.catalog.table(*child_id).cloned() else {
                continue;
            };
            let fk = &child.table.def.foreign_keys[*place];
            let Some(values) = values_of(old, &fk.ref_columns) else {
                continue;
            };
            let unchanged = |n: &[Value]| {
                let mut columns = fk.ref_columns.iter();
                columns.all(|c| same(&old[*c as usize], &n[*c as usize]))
            };
            if new.is_some_and(unchanged) {
                continue;
            }
            let action = match new {
                Some(_) => fk.on_update,
                None => fk.on_delete,
            };
            self.references.probes.push(FkProbe {
                place: *place,
                values,
                kind: Side::Children,
                followed: !matches!(action, FkAction::NoAction | FkAction::Restrict),
                now: action != FkAction::NoAction,
                written: false,
                child,
            });
        }
    }

    /// A row that referenced these values when it was found. What followed from the rows before it may have changed it since: none if it
    /// is not there under its key any more, or does not reference them.
    fn as_it_is(
        &mut self,
        child: &TableHandle,
        fk: &ForeignKey,
        key: &[u8],
        found: Vec<Value>,
        values: &[Value],
    ) -> Result<Option<Vec<Value>>> {
        self.refresh_moved(child.storage.id, key)?;
        let Some(own) = self.writes.get(child.storage.id, key) else {
            return Ok(Some(found));
        };
        let Some(row) = own.row.as_deref() else {
            return Ok(None);
        };
        let shown = self.shown(child, key, child.table.layout.row(row))?;
        let row = shown.as_deref().unwrap_or(row);
        let row = child.table.layout.row(row).values();
        let mut pairs = fk.columns.iter().zip(values);
        let same = pairs.all(|(c, v)| same(&row[*c as usize], v));
        Ok(same.then_some(row))
    }

    fn change_child(
        &mut self,
        child: &Arc<TableHandle>,
        fk: &ForeignKey,
        action: FkAction,
        key: &[u8],
        row: &[Value],
        parent: Option<&[Value]>,
    ) -> Result<()> {
        if action == FkAction::Cascade && parent.is_none() {
            self.delete(child, key)?;
            return Ok(());
        }
        let mut changed = row.to_vec();
        for (c, rc) in fk.columns.iter().zip(&fk.ref_columns) {
            changed[*c as usize] = match (action, parent) {
                (FkAction::Cascade, Some(p)) => {
                    let ty = child.table.def.columns[*c as usize].ty().ty;
                    widen(&p[*rc as usize], ty)
                }
                (FkAction::SetDefault, _) => self.default_of(child, *c as usize)?,
                _ => Value::Null,
            };
        }
        self.update(child, key, &changed)
    }

    /// The rows of `child` that reference these values by its key at `place`, as this transaction would leave them.
    pub(crate) fn children(
        &mut self,
        child: &Arc<TableHandle>,
        place: usize,
        values: &[Value],
    ) -> Result<Vec<Keyed>> {
        let fk = child.table.def.foreign_keys[place].clone();
        let columns = fk.columns.iter();
        let wanted: Vec<usize> = columns.map(|c| *c as usize).collect();
        let matches = |row: &base::RowRef<'_>| {
            let mut pairs = wanted.iter().zip(values);
            pairs.all(|(c, v)| same(&row.get(*c), v))
        };
        let mut found = Vec::new();
        let Some(index) = prefix_index(child, &fk.columns) else {
            let Some(keys) = self.group(child, place, &wanted, values)? else {
                self.each_row(child, Access::Primary, KeyRange::all(), &mut |key, row| {
                    if matches(&row) {
                        found.push((key.to_vec(), row.values()));
                    }
                })?;
                return Ok(found);
            };
            for key in keys {
                let row = |r: base::RowRef<'_>| matches(&r).then(|| r.values());
                if let Some(Some(row)) = self.get_columns(child, &key, ALL_COLUMNS, row)? {
                    found.push((key.into(), row));
                }
            }
            return Ok(found);
        };
        let mut key = Vec::new();
        for (v, k) in ordered(child, index, &fk, values)
            .iter()
            .zip(&child.table.keys[index])
        {
            k.encode(v, &mut key);
        }
        let access = match child.table.def.indexes[index].primary {
            true => Access::Primary,
            false => Access::Index(index),
        };
        self.each_row(child, access, KeyRange::prefix(&key), &mut |key, row| {
            if matches(&row) {
                found.push((key.to_vec(), row.values()));
            }
        })?;
        Ok(found)
    }

    fn each_row(
        &mut self,
        table: &Arc<TableHandle>,
        access: Access,
        range: KeyRange,
        f: &mut dyn FnMut(&[u8], base::RowRef<'_>),
    ) -> Result<()> {
        if range == KeyRange::all() {
            self.references.cascades.whole += 1;
        }
        let mut scan = Scan::new(access, range, Direction::Forward);
        while self.scan(table, &mut scan, 256, &mut |key, row| {
            f(key, row);
            Ok(())
        })? {}
        Ok(())
    }

    /// Keys of rows that may reference these values. None: the table has not been asked before in this statement.
    fn group(
        &mut self,
        child: &Arc<TableHandle>,
        place: usize,
        columns: &[usize],
        values: &[Value],
    ) -> Result<Option<Vec<Box<[u8]>>>> {
        let storage = child.storage.id;
        let groups = &self.references.cascades.groups;
        let known = groups
            .iter()
            .position(|g| g.storage == storage && g.place == place);
        let Some(at) = known else {
            self.references.cascades.groups.push(Grouped {
                storage,
                place,
                by: None,
            });
            return Ok(None);
        };
        if self.references.cascades.groups[at].by.is_none() {
            let mut by: HashMap<Vec<u8>, Vec<Box<[u8]>>> = HashMap::new();
            self.each_row(child, Access::Primary, KeyRange::all(), &mut |key, row| {
                let values: Vec<Value> = columns.iter().map(|c| row.get(*c)).collect();
                if !values.iter().any(Value::is_null) {
                    by.entry(group_of(&values)).or_default().push(key.into());
                }
            })?;
            self.references.cascades.groups[at].by = Some(by);
        }
        let by = self.references.cascades.groups[at].by.as_ref();
        let mut keys = by
            .and_then(|by| by.get(&group_of(values)))
            .cloned()
            .unwrap_or_default();
        // A row that came to reference them again stands there twice.
        keys.sort_unstable();
        keys.dedup();
        Ok(Some(keys))
    }
}
