//! ON CONFLICT: which indexes arbitrate, and what is done instead.
//!
//! A unique index arbitrates when its columns and expressions are those of the target. A partial one does so where the target's condition implies
//! its own.

use super::conflict_text::{Target as Asked, read_target};
use super::expr::Env;
use super::through::{Target, Writable};
use super::{Binder, Scope};
use crate::catalog::{fold, split_name};
use crate::expr::{Expr, Slot};
use crate::logical::write::{ConflictUpdate, OnConflict};
use base::schema::{Index, Table, privilege};
use base::{Error, Result, SqlState};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction};

impl Binder<'_> {
    pub(super) fn on_conflict(
        &mut self,
        target: &Target,
        c: &ast::OnConflict,
        row: &[Slot],
    ) -> Result<OnConflict> {
        let t: &Table = &target.table.table;
        let arbiters = match &c.conflict_target {
            None => vec![],
            Some(ConflictTarget::Columns(cols)) => self.inferred(target, cols)?,
            Some(ConflictTarget::OnConstraint(n)) => {
                let (_, name) = split_name(n)?;
                let is = |i: &Index| i.name == name && i.constraint && i.unique;
                // A view has no constraints.
                let at = match target.columns.is_view() {
                    true => None,
                    false => t.def.indexes.iter().position(is),
                };
                vec![at.ok_or_else(|| {
                    Error::new(
                        SqlState::UNDEFINED_OBJECT,
                        format!(
                            "constraint \"{name}\" for table \"{}\" does not exist",
                            target.columns.relation()
                        ),
                    )
                })?]
            }
        };
        if let Some(by) = &c.conflict_target {
            // What decides is read.
            self.need_target(&target.through, privilege::SELECT);
            if let (ConflictTarget::OnConstraint(_), Some(at)) = (by, arbiters.first()) {
                let key = t.def.indexes[*at].columns.iter();
                let key = key.map(|k| usize::from(k.column));
                self.need_columns(&target.through, privilege::SELECT, key);
            }
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
                self.need_target(&target.through, privilege::UPDATE | privilege::SELECT);
                let (excluded, rel) = self.excluded(target)?;
                let root = Scope::root();
                let mut scope = Scope::inside(&root);
                scope.rels.clone_from(&target.names.rels);
                scope.star.clone_from(&target.names.star);
                // `excluded` is read by its name only.
                scope.rels.push(rel);
                let columns = self.assignments(&target.columns, &u.assignments, &scope)?;
                self.need_assigned(&target.through, &columns);
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

    /// The unique indexes over exactly what the target names.
    fn inferred(&mut self, target: &Target, cols: &[ast::Ident]) -> Result<Vec<usize>> {
        let asked = read_target(cols)?;
        let table = &target.table;
        let root = Scope::root();
        let mut scope = Scope::inside(&root);
        scope.rels.clone_from(&target.names.rels);
        scope.star.clone_from(&target.names.star);
        let around = self.in_rule.replace("index expression");
        let bound = self.bind_target(&asked, &target.columns, &scope);
        self.in_rule = around;
        let (columns, expressions, condition) = bound?;
        let named = columns.iter().map(|c| usize::from(*c));
        self.need_columns(&target.through, privilege::SELECT, named);
        let fits = |i: &Index| {
            let (hidden, mut plain): (Vec<u16>, Vec<u16>) = i
                .written()
                .iter()
                .map(|c| c.column)
                .partition(|c| table.table.def.columns[*c as usize].is_hidden());
            plain.sort_unstable();
            plain.dedup();
            let computed = &table.computed;
            let over = |at: &u16| computed.columns.iter().find(|c| c.0 == *at as usize);
            let over: Vec<&Expr> = hidden.iter().filter_map(over).map(|c| &c.1).collect();
            let all = |a: &[&Expr], b: &[&Expr]| a.iter().all(|x| b.iter().any(|y| x.same(y)));
            let given: Vec<&Expr> = expressions.iter().collect();
            let asked = i.predicate.is_none() || {
                let at = i.columns[0].column as usize;
                let wanted = computed.conditions.iter().find(|c| c.0 == at);
                wanted.is_some_and(|(_, w)| crate::logical::from::implied(&condition, w))
            };
            i.unique && plain == columns && all(&given, &over) && all(&over, &given) && asked
        };
        let indexes = &table.table.def.indexes;
        let hits: Vec<usize> = (0..indexes.len()).filter(|&i| fits(&indexes[i])).collect();
        if hits.is_empty() {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
            ));
        }
        Ok(hits)
    }

    /// The columns of a target, its expressions, and the conjuncts of its condition.
    fn bind_target(
        &mut self,
        asked: &Asked,
        to: &Writable,
        scope: &Scope<'_>,
    ) -> Result<(Vec<u16>, Vec<Expr>, Vec<Expr>)> {
        let (mut columns, mut expressions, mut condition) = (vec![], vec![], vec![]);
        for e in asked.elements.iter().map(super::without_collation) {
            if let ast::Expr::Identifier(c) = e {
                let name = fold(c);
                match to.find(&name) {
                    Ok(Some(at)) => {
                        columns.push(at as u16);
                        continue;
                    }
                    // A view computes it: an index over the same expression has it.
                    Err(_) => {}
                    Ok(None) => {
                        return Err(Error::new(
                            SqlState::UNDEFINED_COLUMN,
                            format!("column \"{name}\" does not exist"),
                        ));
                    }
                }
            }
            let mut env = Env::plain(scope, "index expressions");
            expressions.push(self.expr(e, &mut env)?.expr);
        }
        columns.sort_unstable();
        columns.dedup();
        if let Some(w) = &asked.condition {
            let mut env = Env::plain(scope, "index predicates");
            let bound = self.expr(w, &mut env)?;
            self.condition(bound, "WHERE")?.conjuncts(&mut condition);
        }
        Ok((columns, expressions, condition))
    }
}
