//! ON CONFLICT: which indexes arbitrate, and what is done instead.

use super::expr::Env;
use super::from::Names;
use super::{Binder, Scope};
use crate::catalog::{fold, split_name};
use crate::expr::Slot;
use crate::logical::write::{ConflictUpdate, OnConflict};
use base::schema::{Table, privilege};
use base::{Error, Result, SqlState};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction};

impl Binder<'_> {
    pub(super) fn on_conflict(
        &mut self,
        t: &Table,
        c: &ast::OnConflict,
        row: &[Slot],
        names: &Names,
    ) -> Result<OnConflict> {
        let arbiters = match &c.conflict_target {
            None => vec![],
            Some(ConflictTarget::Columns(cols)) => self.arbiters_by_columns(t, cols)?,
            Some(ConflictTarget::OnConstraint(n)) => {
                let (_, name) = split_name(n)?;
                let at = t
                    .def
                    .indexes
                    .iter()
                    .position(|i| i.name == name && i.constraint && i.unique);
                vec![at.ok_or_else(|| {
                    Error::new(
                        SqlState::UNDEFINED_OBJECT,
                        format!(
                            "constraint \"{name}\" for table \"{}\" does not exist",
                            t.def.name
                        ),
                    )
                })?]
            }
        };
        if c.conflict_target.is_some() {
            // What decides is read.
            self.need(t.def.id, privilege::SELECT);
        }
        let update = match &c.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(u) => {
                if c.conflict_target.is_none() {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                    )
                    .hint("For example, ON CONFLICT (column_name)."));
                }
                self.need(t.def.id, privilege::UPDATE | privilege::SELECT);
                let (excluded, rel) = self.excluded(t);
                let root = Scope::root();
                let mut scope = Scope::inside(&root);
                (scope.rels, scope.star) = (names.rels.clone(), names.star.clone());
                // `excluded` is read by its name only.
                scope.rels.push(rel);
                let columns = self.assignments(t, &u.assignments, &scope)?;
                let mut condition = Vec::new();
                if let Some(w) = &u.selection {
                    let mut env = Env::plain(&scope, "WHERE");
                    let b = self.expr(w, &mut env)?;
                    self.condition(b, "WHERE")?.conjuncts(&mut condition);
                }
                let primary = |a: &usize| t.def.indexes[*a].primary;
                let deltas =
                    match condition.is_empty() && matches!(&arbiters[..], [a] if primary(a)) {
                        true => super::split::of_conflict(t, &columns, row, &excluded),
                        false => vec![],
                    };
                Some(ConflictUpdate {
                    existing: row.to_vec(),
                    excluded,
                    columns,
                    condition,
                    deltas,
                })
            }
        };
        Ok(OnConflict { arbiters, update })
    }

    /// The unique indexes over exactly these columns.
    fn arbiters_by_columns(&self, t: &Table, cols: &[ast::Ident]) -> Result<Vec<usize>> {
        let mut want = Vec::new();
        for c in cols {
            let name = fold(c);
            let at = t.column(&name).ok_or_else(|| {
                Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{name}\" does not exist"),
                )
            })?;
            want.push(at);
        }
        want.sort_unstable();
        want.dedup();
        let fits = |i: &base::schema::Index| {
            let mut have: Vec<u16> = i.columns.iter().map(|c| c.column).collect();
            have.sort_unstable();
            i.unique && have == want
        };
        let hits: Vec<usize> = (0..t.def.indexes.len())
            .filter(|&i| fits(&t.def.indexes[i]))
            .collect();
        if hits.is_empty() {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
            ));
        }
        Ok(hits)
    }
}
