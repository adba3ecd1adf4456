//! What an error may tell of rows.
//!
//! The DETAIL of a broken constraint shows a row or a key. It is told to roles that may read the table, as PostgreSQL does: a role with
//! UPDATE or INSERT alone learns that the constraint is broken, not what the row holds. A key that references nothing is named without its
//! values. The error of WITH CHECK OPTION names its table for this question alone: PostgreSQL's names none.
//!
//! Left out on purpose: showing the columns alone that the statement itself has set.

use super::{Engine, Session};
use base::schema::{Schema, privilege};
use base::{Error, Oid, SqlState};

impl<E: Engine> Session<E> {
    /// The error as it is told, where that is another one: without what the current role may not read.
    pub(super) fn without_rows(&mut self, e: &Error) -> Option<Error> {
        let f = e.fields();
        if f.table.is_empty() || !shows_row(&f.detail) {
            return None;
        }
        let role = self.state.current_role.get();
        let schema = &self.state.catalog.get_mut().schema;
        let may_read = may_read(schema, role, shown_table(schema, e));
        let nameless = f.code == SqlState::WITH_CHECK_OPTION_VIOLATION;
        if may_read && !nameless {
            return None;
        }
        let detail = match f.code {
            _ if may_read => f.detail.clone(),
            SqlState::FOREIGN_KEY_VIOLATION => without_key(&f.detail),
            _ => String::new(),
        };
        let told = e.clone().detail(detail);
        Some(match nameless {
            true => told.table("", ""),
            false => told,
        })
    }
}

fn shows_row(detail: &str) -> bool {
    detail.starts_with("Failing row") || detail.contains(")=(")
}

/// The table whose values the error shows: of a parent that goes it is the parent, though the error names the child.
fn shown_table(schema: &Schema, e: &Error) -> Option<Oid> {
    let f = e.fields();
    let namespace = schema.namespace_named(&f.schema)?.id;
    let table = schema.lookup(namespace, &f.table)?;
    if !f.message.starts_with("update or delete") {
        return Some(table);
    }
    let keys = &schema.table(table)?.def.foreign_keys;
    let key = keys.iter().find(|k| k.name == f.constraint)?;
    Some(key.ref_table)
}

/// One that is not there any more is shown to no role but superusers.
fn may_read(schema: &Schema, role: Oid, table: Option<Oid>) -> bool {
    let check = crate::ddl::privileges::check;
    match table {
        Some(t) => check(schema, role, t, privilege::SELECT).is_ok(),
        None => crate::ddl::privileges::is_superuser(schema, role),
    }
}

/// `Key (a)=(1) is not present …` without the columns and their values.
fn without_key(detail: &str) -> String {
    match (detail.starts_with("Key ("), detail.rfind(") is ")) {
        (true, Some(end)) => format!("Key{}", &detail[end + 1..]),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_told_without_its_values() {
        let detail = "Key (a, b)=(1, x) is y) is not present in table \"p\".";
        assert!(shows_row(detail));
        assert_eq!(without_key(detail), "Key is not present in table \"p\".");
        assert_eq!(without_key("Row (a)=(1)."), "");
        assert!(!shows_row("Column \"a\" is a generated column."));
    }
}
