//! Definitions as SQL text, in PostgreSQL's words: what `pg_get_indexdef` and its kin print.
//!
//! Expressions are kept as they were written; PostgreSQL prints them from its parsed form. See [`deparse_expr`] for conditions; a
//! DEFAULT that is a plain string gets its cast here, and everything else is printed as it was written.
//!
//! Left out on purpose: PostgreSQL's layout of views over several lines beyond the main clauses.

use super::{Resolved, SessionFacts, deparse_expr, display_name};
use crate::ddl::expr_text;
use crate::ddl::{quote_ident, quote_literal};
use crate::types::typename::cast_name;
use base::schema::{
    Check, Column, Deferral, FkAction, ForeignKey, Index, Schema, Table, TableDef, ViewDef,
};
use base::{ColumnIdx, ColumnType, Oid, Type};
use sqlparser::ast::{Expr, Value as Literal};

/// A column's DEFAULT as `pg_get_expr` prints it.
pub(super) fn default(schema: &Schema, path: &[String], column: &Column) -> Option<String> {
    let text = column.default.as_ref()?;
    let shown = |t: ColumnType| match t.ty {
        Type::User(_) | Type::UserArray(_) | Type::Citext | Type::CitextArray => {
            super::user_types::shown(schema, path, t.ty.oid()).unwrap_or_default()
        }
        ty => cast_name(ty),
    };
    let Ok(e) = expr_text::parse(text) else {
        return Some(text.clone());
    };
    Some(match &e {
        Expr::Value(v) => match &v.value {
            Literal::SingleQuotedString(s) | Literal::EscapedStringLiteral(s) => {
                format!("{}::{}", quote_literal(s), shown(column.ty()))
            }
            Literal::SingleQuotedByteStringLiteral(s) => format!("'{s}'::\"bit\""),
            Literal::HexStringLiteral(s) => {
                let digit = |c: char| c.to_digit(16).map(|d| format!("{d:04b}"));
                let bits: String = s.chars().filter_map(digit).collect();
                format!("'{bits}'::\"bit\"")
            }
            Literal::Boolean(b) => b.to_string(),
            Literal::Null => format!("NULL::{}", shown(column.ty())),
            _ => text.clone(),
        },
        Expr::UnaryOp { .. } if text.starts_with('-') && text[1..].parse::<f64>().is_ok() => {
            let ty = if text.contains('.') {
                "numeric"
            } else {
                "integer"
            };
            format!("'{text}'::{ty}")
        }
        _ if schema.extensions().next().is_some() => {
            let searched = |name: &str| {
                let named = schema.namespace_named(name);
                named.is_some_and(|n| super::namespaces(schema, path).any(|id| id == n.id))
            };
            let text = expr_text::unpin_functions(text, searched);
            expression(schema, path, &text)
        }
        _ => expression(schema, path, text),
    })
}

/// The expression of a generated column as `pg_get_expr` prints it.
pub(super) fn generated(def: &TableDef, column: &Column) -> Option<String> {
    let text = column.default.as_ref()?;
    let printed = expr_text::parse(text)
        .ok()
        .and_then(|e| deparse_expr::condition(def, &e, false));
    Some(printed.unwrap_or_else(|| text.clone()))
}

/// An expression, with sequences named as the search path allows.
pub(super) fn expression(schema: &Schema, path: &[String], text: &str) -> String {
    let Some((head, rest)) = text.split_once("nextval('") else {
        return text.to_owned();
    };
    let Some((name, tail)) = rest.split_once("'::regclass)") else {
        return text.to_owned();
    };
    let Ok((ns, rel)) = expr_text::parse_name(&name.replace("''", "'")) else {
        return text.to_owned();
    };
    match super::find(schema, path, ns.as_deref(), &rel) {
        Some(r) => {
            let shown = display_name(schema, path, &r).replace('\'', "''");
            format!("{head}nextval('{shown}'::regclass){tail}")
        }
        None => text.to_owned(),
    }
}

fn column_list(def: &TableDef, columns: &[ColumnIdx]) -> String {
    let names = columns
        .iter()
        .map(|c| quote_ident(&def.columns[*c as usize].name));
    names.collect::<Vec<_>>().join(", ")
}

/// One column of an index: name and order, as CREATE INDEX writes it.
pub(super) fn index_column(
    def: &TableDef,
    index: &Index,
    at: usize,
    (order, pretty): (bool, bool),
) -> Option<String> {
    let Some(c) = index.written().get(at) else {
        let c = *index.include.get(at - index.written().len())?;
        return Some(quote_ident(&def.columns[c as usize].name));
    };
    let column = &def.columns[c.column as usize];
    let mut s = match column.is_hidden() {
        true => key_expression(def, &column.name, pretty),
        false => quote_ident(&column.name),
    };
    if order {
        match (c.desc, c.nulls_first) {
            (false, false) => {}
            (false, true) => s.push_str(" NULLS FIRST"),
            (true, true) => s.push_str(" DESC"),
            (true, false) => s.push_str(" DESC NULLS LAST"),
        }
    }
    Some(s)
}

/// CREATE INDEX. `pretty` names the table as the search path allows.
pub(super) fn index(schema: &Schema, path: Option<&[String]>, t: &Table, index: &Index) -> String {
    let resolved = Resolved::Relation(base::schema::Relation::Table(
        schema.table(t.def.id).expect("from this schema").clone(),
    ));
    let table = match path {
        Some(path) => display_name(schema, path, &resolved),
        None => full_name(schema, &resolved),
    };
    let n = index.written().len();
    let columns = (0..n).filter_map(|i| index_column(&t.def, index, i, (true, path.is_some())));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let unique = if index.unique { "UNIQUE " } else { "" };
    let nulls = if index.nulls_not_distinct {
        " NULLS NOT DISTINCT"
    } else {
        ""
    };
    let include = include(&t.def, index);
    let pretty = path.is_some();
    let condition = index.predicate.as_deref().map_or(String::new(), |p| {
        let parsed = expr_text::parse(p).ok();
        let printed = parsed
            .as_ref()
            .and_then(|e| deparse_expr::condition(&t.def, e, pretty));
        let as_it_stands = || match parsed {
            Some(Expr::Nested(_)) => p.to_owned(),
            _ => format!("({p})"),
        };
        format!(" WHERE {}", printed.unwrap_or_else(as_it_stands))
    });
    let name = quote_ident(&index.name);
    format!(
        "CREATE {unique}INDEX {name} ON {table} USING btree ({columns}){include}{nulls}{condition}"
    )
}

/// An expression of a key: a call stands by itself, all else in parentheses.
fn key_expression(def: &TableDef, text: &str, pretty: bool) -> String {
    let parsed = expr_text::parse(text).ok();
    if matches!(parsed, Some(Expr::Function(_))) {
        return text.to_owned();
    }
    let printed = parsed.and_then(|e| deparse_expr::condition(def, &e, pretty));
    format!("({})", printed.as_deref().unwrap_or(text))
}

/// `schema.name`, always.
pub(super) fn full_name(schema: &Schema, r: &Resolved) -> String {
    let ns = schema.namespace(r.namespace()).map_or("?", |n| &n.name);
    format!("{}.{}", quote_ident(ns), quote_ident(r.name()))
}

/// PRIMARY KEY or UNIQUE of an index that a constraint made.
pub(super) fn key_constraint(def: &TableDef, index: &Index) -> String {
    let columns: Vec<ColumnIdx> = index.columns.iter().map(|c| c.column).collect();
    let columns = column_list(def, &columns);
    let kind = match index.is_primary_key() {
        true => "PRIMARY KEY",
        false if index.nulls_not_distinct => "UNIQUE NULLS NOT DISTINCT",
        false => "UNIQUE",
    };
    let (include, late) = (include(def, index), deferrable(index.deferral));
    format!("{kind} ({columns}){include}{late}")
}

fn include(def: &TableDef, index: &Index) -> String {
    match index.include.is_empty() {
        true => String::new(),
        false => format!(" INCLUDE ({})", column_list(def, &index.include)),
    }
}

/// CHECK (…); not `pretty`, a condition with operators has parentheses of its own.
pub(super) fn check(def: &TableDef, c: &Check, pretty: bool) -> String {
    let parsed = expr_text::parse(&c.expr).ok();
    let shown = parsed.and_then(|e| deparse_expr::condition(def, &e, pretty));
    let shown = shown.as_deref().unwrap_or(&c.expr);
    format!("CHECK ({shown}){}", not_valid(c.not_valid))
}

fn not_valid(unchecked: bool) -> &'static str {
    match unchecked {
        true => " NOT VALID",
        false => "",
    }
}

/// FOREIGN KEY … REFERENCES …
pub(super) fn foreign_key(
    schema: &Schema,
    path: Option<&[String]>,
    def: &TableDef,
    f: &ForeignKey,
) -> String {
    let Some(target) = schema.table(f.ref_table) else {
        return String::new();
    };
    let resolved = Resolved::Relation(base::schema::Relation::Table(target.clone()));
    let name = match path {
        Some(path) => display_name(schema, path, &resolved),
        None => full_name(schema, &resolved),
    };
    let mut s = format!(
        "FOREIGN KEY ({}) REFERENCES {name}({})",
        column_list(def, &f.columns),
        column_list(&target.def, &f.ref_columns)
    );
    for (on, action) in [("UPDATE", f.on_update), ("DELETE", f.on_delete)] {
        if let Some(a) = action_name(action) {
            s.push_str(&format!(" ON {on} {a}"));
        }
    }
    s.push_str(deferrable(f.deferral));
    s.push_str(not_valid(f.not_valid));
    s
}

fn deferrable(d: Deferral) -> &'static str {
    match d {
        Deferral::Never => "",
        Deferral::Immediate => " DEFERRABLE",
        Deferral::Deferred => " DEFERRABLE INITIALLY DEFERRED",
    }
}

fn action_name(a: FkAction) -> Option<&'static str> {
    match a {
        FkAction::NoAction => None,
        FkAction::Restrict => Some("RESTRICT"),
        FkAction::Cascade => Some("CASCADE"),
        FkAction::SetNull => Some("SET NULL"),
        FkAction::SetDefault => Some("SET DEFAULT"),
    }
}

/// The definition of any constraint, by its number.
pub(super) fn constraint(
    schema: &Schema,
    path: Option<&[String]>,
    id: Oid,
    pretty: bool,
) -> Option<String> {
    for t in schema.tables() {
        if let Some(i) = t
            .def
            .indexes
            .iter()
            .find(|i| i.constraint && i.constraint_oid == id)
        {
            return Some(key_constraint(&t.def, i));
        }
        if let Some(c) = t.def.checks.iter().find(|c| c.id == id) {
            return Some(check(&t.def, c, pretty));
        }
        if let Some(f) = t.def.foreign_keys.iter().find(|f| f.id == id) {
            return Some(foreign_key(schema, path, &t.def, f));
        }
    }
    let mut checks = super::user_types::checks(schema);
    let (_, c) = checks.find(|(_, c)| c.id == id)?;
    Some(format!("CHECK ({})", c.expr))
}

/// A view's query as `pg_get_viewdef` shows it under a search path: relations that are not visible there have their schema.
pub(super) fn view(
    schema: &Schema,
    path: &[String],
    facts: &dyn SessionFacts,
    view: &ViewDef,
) -> String {
    let mut names = facts.unqualified_names(schema, view);
    names.sort_by_key(|(at, _)| (at.line, at.column));
    names.dedup_by_key(|(at, _)| *at);
    let mut text = view.query.clone();
    // From the end, so that what is ahead keeps its place.
    for (at, relation) in names.into_iter().rev() {
        let Some(r) = super::by_oid(schema, relation) else {
            continue;
        };
        let visible = super::find(schema, path, None, r.name());
        if visible.is_some_and(|f| f.oid() == relation) {
            continue;
        }
        let lines = text.split_inclusive('\n');
        let before: usize = lines.take(at.line as usize - 1).map(str::len).sum();
        let start = text[before..].char_indices().nth(at.column as usize - 1);
        if let (Some((i, _)), Some(n)) = (start, schema.namespace(r.namespace())) {
            text.insert_str(before + i, &format!("{}.", quote_ident(&n.name)));
        }
    }
    lay_out(&text)
}

/// The lines of a view's query: a blank before SELECT, main clauses on lines of their own.
fn lay_out(query: &str) -> String {
    use sqlparser::tokenizer::Token;
    let mut depth = 0;
    let mut out = String::from(" ");
    let mut in_list = false;
    let tokens = expr_text::tokens(query);
    let mut i = 0;
    while i < tokens.len() {
        let t = &tokens[i];
        match t {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        let word = match t {
            Token::Word(w) if w.quote_style.is_none() => w.value.to_uppercase(),
            _ => String::new(),
        };
        let breaks = match word.as_str() {
            "FROM" => Some("\n   "),
            "WHERE" | "LIMIT" | "OFFSET" | "HAVING" | "WINDOW" => Some("\n  "),
            "GROUP" | "ORDER" => Some("\n  "),
            "UNION" | "INTERSECT" | "EXCEPT" => Some("\n"),
            "LEFT" | "RIGHT" | "INNER" | "CROSS" | "FULL" | "JOIN" if depth == 0 => {
                let last = out
                    .trim_end()
                    .rsplit(' ')
                    .next()
                    .unwrap_or("")
                    .to_uppercase();
                let goes_on = matches!(
                    last.as_str(),
                    "LEFT" | "RIGHT" | "INNER" | "CROSS" | "FULL" | "OUTER"
                );
                (!goes_on).then_some("\n     ")
            }
            _ => None,
        };
        if depth == 0 {
            if word == "SELECT" {
                in_list = true;
            } else if word == "FROM" {
                in_list = false;
            }
            if let Some(b) = breaks {
                out.truncate(out.trim_end().len());
                out.push_str(b);
            }
        }
        out.push_str(&t.to_string());
        if depth == 0 && in_list && matches!(t, Token::Comma) {
            out.push_str("\n    ");
            while matches!(tokens.get(i + 1), Some(Token::Whitespace(_))) {
                i += 1;
            }
        }
        i += 1;
    }
    out.push(';');
    out
}

#[cfg(test)]
mod tests {
    use super::lay_out;

    #[test]
    fn views_are_laid_out_by_clause() {
        let v = lay_out(
            "SELECT a, f(b, c) AS d FROM t LEFT JOIN u ON t.x = u.x WHERE a > 1 ORDER BY a",
        );
        assert_eq!(
            v,
            " SELECT a,\n    f(b, c) AS d\n   FROM t\n     LEFT JOIN u ON t.x = u.x\n  WHERE a > 1\n  ORDER BY a;"
        );
    }
}
