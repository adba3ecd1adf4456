//! MERGE: the source joined with the target, and clauses about each pair.
//!
//! The join keeps source rows without a match when a clause is about them. A clause about a match sees the columns of both; a clause about a
//! row without a match sees those of the source.
//!
//! Left out on purpose, as in PostgreSQL 15: RETURNING, BY SOURCE, views as targets, MERGE inside of WITH.

use super::expr::Env;
use super::insert::{Places, overriding};
use super::merge_text::is_default_values;
use super::select::QCol;
use super::through::{Target, Through, Writable};
use super::{Binder, Scope};
use crate::catalog::Resolved;
use crate::logical::write::{ColumnSource, Merge, MergeAction, MergeClause};
use crate::logical::{From, Logical, Root};
use base::schema::{Relation, privilege};
use base::{Error, Result, SqlState};
use sqlparser::ast::{
    self, MergeAction as Action, MergeClauseKind, MergeInsertKind, MergeUpdateKind, TableAlias,
    TableFactor, TableWithJoins,
};

/// The names that the clauses see.
struct Seen<'a, 'p> {
    both: &'a Scope<'p>,
    source: &'a Scope<'p>,
}

impl Binder<'_> {
    pub(super) fn merge(&mut self, m: &ast::Merge, outer: &Scope<'_>) -> Result<(Root, Vec<QCol>)> {
        check_form(m)?;
        let (name, alias) = target_name(&m.table)?;
        self.mergeable(name)?;
        let rights = m.clauses.iter().fold(0, |r, c| {
            r | match c.action {
                Action::Insert(_) => privilege::INSERT,
                Action::Update(_) => privilege::UPDATE,
                Action::Delete { .. } => privilege::DELETE,
                Action::DoNothing { .. } => 0,
            }
        });
        let target = self.target(name, alias, rights)?;
        let (handle, row) = (target.storage()?, target.row());
        let Target {
            mut table,
            names,
            columns: writable,
            through,
        } = target;
        let key_slot = self.key_slot(&mut table);
        let alias = table.alias.clone();
        let from = [TableWithJoins {
            relation: m.source.clone(),
            joins: vec![],
        }];
        let (mut items, source) = self.bind_from(&from, outer)?;
        if source.rels.iter().any(|r| r.alias == alias) {
            return Err(Error::new(
                SqlState::DUPLICATE_ALIAS,
                format!("name \"{alias}\" specified more than once"),
            )
            .detail("The name is used both as MERGE target table and data source."));
        }
        let mut both = Scope::inside(outer);
        (both.rels, both.star) = (names.rels, names.star);
        both.rels.extend(source.rels.iter().cloned());
        both.star.extend(source.star.iter().cloned());
        let mut on = Vec::new();
        let mut env = Env::plain(&both, "JOIN conditions");
        let b = self.expr(&m.on, &mut env)?;
        self.condition(b, "JOIN/ON")?.conjuncts(&mut on);
        let seen = Seen {
            both: &both,
            source: &source,
        };
        let mut clauses = Vec::with_capacity(m.clauses.len());
        for c in &m.clauses {
            clauses.push(self.merge_clause(&writable, c, &seen, &through)?);
        }
        self.need_read(&through);
        // What an UPDATE keeps must be read.
        for c in &clauses {
            let MergeAction::Update(columns) = &c.action else {
                continue;
            };
            for (c, &s) in columns.iter().zip(&row) {
                self.used[s as usize] |= matches!(c, ColumnSource::Keep);
            }
        }
        let target = From::Table(table);
        let input = match clauses.iter().all(|c| c.matched) {
            true => {
                items.push(target);
                Logical::Join { items, filter: on }
            }
            false => Logical::Join {
                items: vec![From::Left {
                    left: Box::new(From::Inner {
                        items,
                        filter: vec![],
                    }),
                    right: Box::new(target),
                    on,
                }],
                filter: vec![],
            },
        };
        let root = Root::Merge(Merge {
            handle,
            alias,
            input,
            key_slot,
            row,
            clauses,
        });
        Ok((root, vec![]))
    }

    /// 0A000 for a relation that is no table.
    fn mergeable(&mut self, name: &ast::ObjectName) -> Result<()> {
        let found = match self.relation(name) {
            Ok(Resolved::Relation(r)) => r,
            // `target` says what is wrong, and where.
            _ => return Ok(()),
        };
        let kind = match found {
            Relation::Table(_) => return Ok(()),
            Relation::View(_) => "views",
            Relation::Sequence(_) => "sequences",
        };
        Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("cannot execute MERGE on relation \"{}\"", found.name()),
        )
        .detail(format!("This operation is not supported for {kind}.")))
    }

    fn merge_clause(
        &mut self,
        to: &Writable,
        c: &ast::MergeClause,
        seen: &Seen<'_, '_>,
        through: &Through,
    ) -> Result<MergeClause> {
        let t = &to.table;
        let matched = c.clause_kind == MergeClauseKind::Matched;
        let scope = match matched {
            true => seen.both,
            false => seen.source,
        };
        let mut condition = Vec::new();
        if let Some(e) = &c.predicate {
            let mut env = Env::plain(scope, "MERGE WHEN conditions");
            let b = self.expr(e, &mut env)?;
            self.condition(b, "WHEN")?.conjuncts(&mut condition);
        }
        let action = match &c.action {
            Action::DoNothing { .. } => MergeAction::Nothing,
            Action::Delete { .. } => MergeAction::Delete,
            Action::Update(u) => match &u.kind {
                MergeUpdateKind::Set(list) => {
                    let columns = self.assignments(to, list, scope)?;
                    self.need_assigned(through, &columns);
                    MergeAction::Update(columns)
                }
                MergeUpdateKind::Wildcard => return Err(syntax("*")),
            },
            Action::Insert(i) => {
                let MergeInsertKind::Values(values) = &i.kind else {
                    return Err(syntax("*"));
                };
                if values.rows.len() != 1 {
                    return Err(syntax(","));
                }
                MergeAction::Insert(match is_default_values(&i.columns) {
                    true => self.insert_columns(t, &Places::none(), &[])?,
                    false => {
                        let (over, listed) = overriding(&i.columns);
                        let places = self.insert_places(to, listed)?;
                        let (_, given, _) = self.insert_values(t, &places, values, scope, over)?;
                        let written = places.given(given.len());
                        self.need_columns(through, privilege::INSERT, written);
                        self.insert_columns(t, &places, &given)?
                    }
                })
            }
        };
        Ok(MergeClause {
            matched,
            condition,
            action,
        })
    }
}

fn syntax(at: &str) -> Error {
    Error::new(
        SqlState::SYNTAX_ERROR,
        format!("syntax error at or near \"{at}\""),
    )
}

/// 42601 for what other databases say in a MERGE, and for a clause that no row can reach.
fn check_form(m: &ast::Merge) -> Result<()> {
    if m.output.is_some() {
        return Err(syntax("RETURNING"));
    }
    if m.clauses.is_empty() {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "syntax error at end of input",
        ));
    }
    let mut ended = [false; 2];
    for c in &m.clauses {
        let place = match c.clause_kind {
            MergeClauseKind::Matched => 0,
            MergeClauseKind::NotMatched => 1,
            _ => return Err(syntax("BY")),
        };
        let filtered = match &c.action {
            Action::Insert(i) => i.insert_predicate.is_some(),
            Action::Update(u) => u.update_predicate.is_some() || u.delete_predicate.is_some(),
            _ => false,
        };
        if filtered {
            return Err(syntax("WHERE"));
        }
        if ended[place] {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "unreachable WHEN clause specified after unconditional WHEN clause",
            ));
        }
        ended[place] = c.predicate.is_none();
    }
    Ok(())
}

fn target_name(t: &TableFactor) -> Result<(&ast::ObjectName, Option<&TableAlias>)> {
    match t {
        TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } => Ok((name, alias.as_ref())),
        _ => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "MERGE takes one table by name",
        )),
    }
}
