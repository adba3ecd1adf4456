//! ON CONFLICT: which indexes arbitrate, and what is done instead.
//!
//! A unique index arbitrates when its columns and expressions are those of the target. A partial one does so where the target's condition implies
//! its own.

use super::conflict_text::{Target, read_target};
use super::expr::Env;
use super::from::Names;
use super::{Binder, Scope};
use crate::catalog::{fold, split_name};
use crate::expr::{Expr, Slot};
use crate::logical::TableRef;
use crate::logical::write::{ConflictUpdate, OnConflict};
use base::schema::{Index, Table, privilege};
use base::{Error, Result, SqlState};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction};

impl Binder<'_> {
    pub(super) fn on_conflict(
        &mut self,
        table: &TableRef,
        c: &ast::OnConflict,
        row: &[Slot],
        names: &Names,
    ) -> Result<OnConflict> {
        let t: &Table = &table.table;
        let arbiters = match &c.conflict_target {
            None => vec![],
            Some(ConflictTarget::Columns(cols)) => self.inferred(table, cols, names)?,
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

    /// The unique indexes over exactly what the target names.
    fn inferred(
        &mut self,
        table: &TableRef,
        cols: &[ast::Ident],
        names: &Names,
    ) -> Result<Vec<usize>> {
        let target = read_target(cols)?;
        let root = Scope::root();
        let mut scope = Scope::inside(&root);
        (scope.rels, scope.star) = (names.rels.clone(), names.star.clone());
        let around = self.in_rule.replace("index expression");
        let bound = self.bind_target(&target, table, &scope);
        self.in_rule = around;
        let (columns, expressions, condition) = bound?;
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
        target: &Target,
        table: &TableRef,
        scope: &Scope<'_>,
    ) -> Result<(Vec<u16>, Vec<Expr>, Vec<Expr>)> {
        let (mut columns, mut expressions, mut condition) = (vec![], vec![], vec![]);
        for e in target.elements.iter().map(super::without_collation) {
            if let ast::Expr::Identifier(c) = e {
                let name = fold(c);
                columns.push(table.table.column(&name).ok_or_else(|| {
                    Error::new(
                        SqlState::UNDEFINED_COLUMN,
                        format!("column \"{name}\" does not exist"),
                    )
                })?);
                continue;
            }
            let mut env = Env::plain(scope, "index expressions");
            expressions.push(self.expr(e, &mut env)?.expr);
        }
        columns.sort_unstable();
        columns.dedup();
        if let Some(w) = &target.condition {
            let mut env = Env::plain(scope, "index predicates");
            let bound = self.expr(w, &mut env)?;
            self.condition(bound, "WHERE")?.conjuncts(&mut condition);
        }
        Ok((columns, expressions, condition))
    }
}
