//! Names that PostgreSQL makes up: `t_pkey`, `t_a_b_key`, `t_a_fkey1`, `t_id_seq`.

use super::work::Work;
use crate::catalog::MAX_NAME;
use base::Oid;
use base::schema::TableDef;

/// `first_second_label`, the longer of the first two cut until it fits.
pub(super) fn make(first: &str, second: &str, label: &str) -> String {
    let extra = usize::from(!second.is_empty()) + 1 + label.len();
    let room = MAX_NAME - extra;
    let (mut a, mut b) = (first.len(), second.len());
    while a + b > room {
        if a > b { a -= 1 } else { b -= 1 }
    }
    while !first.is_char_boundary(a) {
        a -= 1;
    }
    while !second.is_char_boundary(b) {
        b -= 1;
    }
    let mut s = first[..a].to_owned();
    if !second.is_empty() {
        s = format!("{s}_{}", &second[..b]);
    }
    format!("{s}_{label}")
}

/// The columns' names with `_` between, as long as a name may be.
pub(super) fn join<'a>(columns: impl IntoIterator<Item = &'a str>) -> String {
    let mut s = String::new();
    for c in columns {
        if !s.is_empty() {
            s.push('_');
        }
        s.push_str(c);
        if s.len() > MAX_NAME {
            break;
        }
    }
    let cut = crate::catalog::cut(&s);
    s.truncate(cut);
    s
}

impl Work<'_> {
    /// A name that no relation of the schema has.
    pub(super) fn relation_name(&self, ns: Oid, first: &str, second: &str, label: &str) -> String {
        first_free(first, second, label, |n| self.taken(ns, n))
    }

    /// A name that neither a relation nor a constraint of the schema has, nor `def`, which is not in the schema yet.
    pub(super) fn constraint_name(
        &self,
        def: &TableDef,
        second: &str,
        label: &str,
        index: bool,
    ) -> String {
        first_free(&def.name, second, label, |n| {
            // As it stands in the schema it may have one that it loses.
            let own = self
                .schema
                .table(def.id)
                .is_some_and(|t| t.def.namespace == def.namespace && has_constraint(&t.def, n));
            let all = self.schema.constraints_named(def.namespace, n);
            has_constraint(def, n)
                || all > usize::from(own)
                || index
                    && (self.taken(def.namespace, n)
                        || n == def.name
                        || def.indexes.iter().any(|i| i.name == n))
        })
    }
}

/// Whether the table has a constraint of this name.
pub(super) fn has_constraint(def: &TableDef, name: &str) -> bool {
    def.checks.iter().any(|c| c.name == name)
        || def.foreign_keys.iter().any(|f| f.name == name)
        || def.indexes.iter().any(|i| i.constraint && i.name == name)
}

fn first_free(first: &str, second: &str, label: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut name = make(first, second, label);
    let mut n = 0;
    while taken(&name) {
        n += 1;
        name = make(first, second, &format!("{label}{n}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_are_cut_as_postgresql_cuts_them() {
        assert_eq!(make("t", "a", "key"), "t_a_key");
        assert_eq!(make("t", "", "pkey"), "t_pkey");
        let (t, c) = ("t".repeat(60), "c".repeat(60));
        let n = make(&t, &c, "fkey");
        assert_eq!(n.len(), 63);
        assert_eq!(n, format!("{}_{}_fkey", &t[..29], &c[..28]));
        assert_eq!(
            make(&"é".repeat(31), "", "seq"),
            format!("{}_seq", "é".repeat(29))
        );
        assert_eq!(join(["a", "b"]), "a_b");
    }
}
