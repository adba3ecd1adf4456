//! ON CONFLICT: which indexes arbitrate, and what is done instead.
//!
//! The parser knows a target that is a list of columns. [`adapt`] brings it one with expressions or a condition as a column behind a mark:
//!
//! ```text
//! ON CONFLICT (lower(mail)) WHERE NOT gone DO …   ──▶   ON CONFLICT ("\u{1}(lower(mail)) WHERE NOT gone") DO …
//! ```
//! A unique index arbitrates when its columns and expressions are those of the target. A partial one does so where the target's condition implies
//! its own.

use super::expr::Env;
use super::from::Names;
use super::tokens::{MARK, quoted, solid, word_of};
use super::{Binder, Scope};
use crate::catalog::{fold, split_name};
use crate::expr::{Expr, Slot};
use crate::logical::TableRef;
use crate::logical::write::{ConflictUpdate, OnConflict};
use base::schema::{Index, Table, privilege};
use base::{Error, Result, SqlState};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Rewrites the targets that the parser cannot read.
pub(super) fn adapt(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |t: &TokenWithSpan, w: &str| word_of(t).as_deref() == Some(w);
    if !tokens.iter().any(|t| is(t, "conflict")) {
        return tokens;
    }
    let mut from = 0;
    while let Some((open, end, simple)) = next_target(&tokens, from) {
        from = open + 1;
        if simple {
            continue;
        }
        let text: String = tokens[open..end].iter().map(spelled).collect();
        let span = tokens[open].span;
        let mark = [
            Token::LParen,
            quoted(format!("{MARK}{text}")),
            Token::RParen,
        ];
        tokens.splice(
            open..end,
            mark.into_iter().map(|t| TokenWithSpan::new(t, span)),
        );
    }
    tokens
}

/// The next target behind a place: where it begins and ends, and whether the parser can read it.
fn next_target(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, usize, bool)> {
    let solid = solid(tokens);
    let is = |k: usize, w: &str| {
        let word = solid.get(k).and_then(|&i| word_of(&tokens[i]));
        word.as_deref() == Some(w)
    };
    let token = |k: usize| solid.get(k).map(|&i| &tokens[i].token);
    let open = (0..solid.len()).find(|&k| {
        solid[k] >= from
            && token(k) == Some(&Token::LParen)
            && k > 1
            && is(k - 1, "conflict")
            && is(k - 2, "on")
    })?;
    let (mut depth, mut names) = (0usize, true);
    let close = (open..solid.len()).find(|&k| {
        match token(k) {
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth -= 1,
            Some(Token::Word(_) | Token::Comma) => {}
            _ => names = false,
        }
        names &= depth < 2;
        depth == 0
    })?;
    // Two words beside each other are a column and its operator class or collation.
    let word = |k: usize| matches!(token(k), Some(Token::Word(_)));
    let simple = names && !(open..close).any(|k| word(k) && word(k + 1));
    if !is(close + 1, "where") {
        return Some((solid[open], solid[close] + 1, simple));
    }
    let (mut depth, mut cases) = (0i32, 0i32);
    let end = (close + 1..solid.len()).find(|&k| {
        match token(k) {
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth -= 1,
            _ if is(k, "case") => cases += 1,
            _ if is(k, "end") => cases -= 1,
            _ => {}
        }
        depth == 0 && cases == 0 && is(k, "do")
    })?;
    Some((solid[open], solid[end - 1] + 1, false))
}

/// A token as a text that is read again.
fn spelled(t: &TokenWithSpan) -> String {
    match &t.token {
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => {
            format!("'{}'", s.replace('\'', "''"))
        }
        Token::Word(w) if w.quote_style.is_some() => crate::ddl::quote_ident(&w.value),
        t => t.to_string(),
    }
}

/// The elements of a target, and its condition.
struct Target {
    elements: Vec<ast::Expr>,
    condition: Option<ast::Expr>,
}

fn read_target(cols: &[ast::Ident]) -> Result<Target> {
    let text = match cols {
        [c] => c.value.strip_prefix(MARK),
        _ => None,
    };
    let Some(text) = text else {
        let elements = cols.iter().cloned().map(ast::Expr::Identifier).collect();
        return Ok(Target {
            elements,
            condition: None,
        });
    };
    let read = |text: &str| -> Result<Target, ParserError> {
        let mut p = Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?;
        p.expect_token(&Token::LParen)?;
        let elements = p.parse_comma_separated(Parser::parse_create_index_expr)?;
        p.expect_token(&Token::RParen)?;
        let condition = match p.parse_keyword(Keyword::WHERE) {
            true => Some(p.parse_expr()?),
            false => None,
        };
        p.expect_token(&Token::EOF)?;
        let elements = elements.into_iter().map(|e| e.column.expr).collect();
        Ok(Target {
            elements,
            condition,
        })
    };
    read(text).map_err(|e| Error::new(SqlState::SYNTAX_ERROR, format!("syntax error: {e}")))
}

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
        for e in &target.elements {
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
