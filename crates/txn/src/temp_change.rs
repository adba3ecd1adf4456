//! A transaction's work on the temporary tables of its session: taking them, changing them, giving them back. See [`crate::temp`].
//!
//! Left out on purpose: changing rows, which is as for every table.

use base::Oid;
use base::schema::{Change, Object, Table, TableDef};
use std::sync::Arc;
use store::{SecondaryIndex, Storage};

use crate::handle::{Catalog, TableHandle};
use crate::stop;
use crate::temp::{OnCommit, Temp, TempSpace, TempStep};
use crate::txn::Txn;
use crate::writes::{Parted, TableWrites};

impl Txn {
    /// Gives the session's temporary tables to the transaction, which has not written yet, until it ends.
    pub fn lend(&mut self, space: &TempSpace) {
        if self.schema.temp.is_some() {
            return;
        }
        let (tables, rows, over) = {
            let mut s = space.lock();
            s.counted.get_or_insert_with(|| self.shared.clone());
            let over = s.over(&self.schema.catalog);
            (s.tables.clone(), std::mem::take(&mut s.rows), over)
        };
        self.writes.lend(rows);
        let temp = Temp {
            space: space.clone(),
            before: tables.clone(),
            now: tables,
            steps: vec![],
        };
        self.schema.catalog = over;
        self.schema.temp = Some(Box::new(temp));
    }

    /// Whether temporary tables can be made in it.
    pub fn has_temp_space(&self) -> bool {
        self.schema.temp.is_some()
    }

    /// Whether these are changes of temporary objects alone.
    pub fn are_temporary(&self, changes: &[Change]) -> bool {
        let schema = &self.schema.catalog.schema;
        let Some(temp) = &self.schema.temp else {
            return false;
        };
        let mut spaces: Vec<Oid> = schema.temporary().into_iter().collect();
        let known = |id: Oid, changes: &[Change]| {
            temp.now.objects.iter().any(|o| o.id() == id)
                || changes
                    .iter()
                    .any(|c| matches!(c, Change::Put(o) if o.id() == id))
        };
        changes.iter().all(|c| match c {
            Change::Drop(id) => temp.now.objects.iter().any(|o| o.id() == *id),
            Change::Put(o) => match o {
                Object::Namespace(n) => {
                    let own = n.name.starts_with(base::schema::TEMPORARY);
                    if own {
                        spaces.push(n.id);
                    }
                    own
                }
                Object::Table(t) => spaces.contains(&t.namespace),
                Object::Sequence(s) => spaces.contains(&s.namespace),
                Object::View(v) => spaces.contains(&v.namespace),
                Object::Comment { on, .. } => known(*on, changes),
                Object::Role(_)
                | Object::Type(_)
                | Object::Settings(_)
                | Object::Member(_)
                | Object::DefaultAcl(_)
                | Object::Extension(_) => false,
            },
        })
    }

    /// Changes temporary objects, as [`Txn::change_schema`] changes those of all sessions. Other sessions are not concerned, so no lock is taken.
    pub fn change_temp(
        &mut self,
        changes: &[Change],
        on_commit: Option<(Oid, OnCommit)>,
    ) -> stop::Result<()> {
        self.shared.check_accepts_writes()?;
        let mark = self.writes.mark_schema();
        let before = self.schema.catalog.clone();
        let temp = self.schema.temp.as_mut().expect("the space was lent");
        temp.steps.push(TempStep {
            mark,
            tables: temp.now.clone(),
            catalog: before.clone(),
        });
        let mut now = (*temp.now).clone();
        for c in changes {
            match c {
                Change::Drop(id) => now.drop_object(*id),
                Change::Put(o) => {
                    let o = match o.clone() {
                        Object::Table(t) => Object::Table(TableDef {
                            rewrite_of: None,
                            ..t
                        }),
                        o => o,
                    };
                    match now.objects.iter_mut().find(|x| x.id() == o.id()) {
                        Some(x) => *x = o,
                        None => now.objects.push(o),
                    }
                }
            }
        }
        now.on_commit.extend(on_commit);
        let schema = before
            .schema
            .with_temporary(&temp.now.objects, &now.objects);
        let mut changed = vec![];
        for o in &now.objects {
            let Object::Table(def) = o else { continue };
            let table = schema.table(def.id).expect("just put");
            let old = now.handles.get(&def.id);
            let put = changes
                .iter()
                .any(|c| matches!(c, Change::Put(o) if o.id() == def.id));
            if !put && old.is_some_and(|h| h.table.referenced_by == table.referenced_by) {
                continue;
            }
            let handle = Arc::new(handle(table, old, self.shared.new_id()));
            changed.push((old.cloned(), handle));
        }
        for (_, handle) in &changed {
            now.handles.insert(handle.table.def.id, handle.clone());
        }
        let mut tables = before.tables.clone();
        for id in temp.now.handles.keys() {
            tables.remove(id);
        }
        for (id, handle) in &now.handles {
            tables.insert(*id, handle.clone());
        }
        temp.now = Arc::new(now);
        self.schema.catalog = Arc::new(Catalog {
            schema: Arc::new(schema),
            tables,
        });
        for (old, new) in changed {
            let Some(old) = old.filter(|o| o.storage.id == new.storage.id) else {
                continue;
            };
            self.writes.replace_table(old.storage.id, &new, None);
            let known = |id: Oid| old.table.def.indexes.iter().any(|i| i.id == id);
            for (place, index) in new.table.def.indexes.iter().enumerate() {
                if !known(index.id) {
                    self.check_own_unique(&new, place)?;
                }
            }
            self.check_existing_rows(&old, &new)?;
        }
        Ok(())
    }

    /// Drops every temporary object of the session.
    pub fn drop_temp(&mut self) -> stop::Result<()> {
        let Some(temp) = &self.schema.temp else {
            return Ok(());
        };
        let all = temp.now.objects.iter().map(|o| Change::Drop(o.id()));
        let all: Vec<Change> = all.collect();
        self.change_temp(&all, None)
    }

    /// The rows of temporary tables, parted from what is committed. None without such tables.
    pub(crate) fn part_temp(&mut self) -> Option<Parted> {
        self.schema.temp.is_some().then(|| self.writes.part())
    }

    /// Gives the session its temporary tables back, as this transaction leaves them or as they were.
    pub(crate) fn return_temp(&mut self, parted: Option<Parted>, committed: bool) {
        let (Some(temp), Some(parted)) = (self.schema.temp.take(), parted) else {
            return;
        };
        let (tables, (rows, grown)) = match committed {
            true => (temp.now.committed(), parted.kept()),
            false => (temp.before.clone(), (parted.undone().collect(), Some(0))),
        };
        let keep = |t: &TableWrites| {
            let def = &t.table.table.def;
            let handle = tables.handles.get(&def.id);
            handle.is_some_and(|h| h.storage.id == t.table.storage.id)
                && !(committed && tables.deletes_rows(def.id))
        };
        let all = rows.len();
        let rows: Vec<TableWrites> = rows.into_iter().filter(keep).collect();
        let grown = grown.filter(|_| rows.len() == all);
        tables.reshape();
        if !Arc::ptr_eq(&temp.before, &tables) {
            temp.space.set_generation(self.shared.new_id());
        }
        temp.space.lock().put(tables, rows, grown);
    }
}

/// The handle of a temporary table, over the storage of `old` if its rows stay there.
fn handle(table: &Arc<Table>, old: Option<&Arc<TableHandle>>, shape: u64) -> TableHandle {
    let old = old.filter(|h| h.storage.id == table.def.storage);
    let storage = match old {
        Some(h) => h.storage.clone(),
        None => Arc::new(Storage::new(table.def.storage)),
    };
    let index = |place: usize| {
        let spec = TableHandle::index_spec(table, place);
        let mut known = old.into_iter().flat_map(|h| h.indexes.iter().flatten());
        Arc::new(match known.find(|i| i.spec.id == spec.id) {
            Some(i) => i.with_spec(spec),
            None => SecondaryIndex::new(spec),
        })
    };
    let places = 0..table.def.indexes.len();
    let indexes = places.map(|p| (!table.def.indexes[p].primary).then(|| index(p)));
    storage.set_shape(shape);
    let mut handle = TableHandle::new(table.clone(), storage, indexes.collect(), shape, &|_| None);
    handle.temporary = true;
    handle
}
