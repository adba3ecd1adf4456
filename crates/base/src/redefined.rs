//! What a change of the schema means for transactions that began before it, on other nodes.
//!
//! | changed or dropped | concerns the transactions that used |
//! |---|---|
//! | a table, a sequence, a view, with what it references and its grants | it |
//! | a role, the roles that it was given | it, or a role that has its rights |
//! | a schema, a type, an extension | anything: which names and values they used is not kept |
//! | comments, stored settings, default privileges; all that is new | nothing |
//!
//! A new table that references another one changes that other one, too. A column of a domain changes with the domain.
//!
//! Left out on purpose: names. A transaction goes on with what its names meant when it looked them up.

use crate::Oid;
use crate::schema::{Relation, Schema};
use std::sync::Arc;

/// What is not the same any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redefined {
    /// A relation or a role of this number.
    Object(Oid),
    /// An object of the schema whose users are not known.
    Shared,
}

impl Relation {
    fn is(&self, other: &Relation) -> bool {
        match (self, other) {
            (Relation::Table(a), Relation::Table(b)) => Arc::ptr_eq(a, b),
            (Relation::Sequence(a), Relation::Sequence(b)) => Arc::ptr_eq(a, b),
            (Relation::View(a), Relation::View(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Schema {
    /// Calls `f` with all that is another in `later`. What both share is not looked at.
    pub fn each_redefined(&self, later: &Schema, f: &mut dyn FnMut(Redefined)) {
        self.relations
            .each_change(&later.relations, &mut |id, old, new| {
                if old.is_some_and(|o| new.is_none_or(|n| !o.is(n))) {
                    f(Redefined::Object(*id));
                }
            });
        self.roles.each_change(&later.roles, &mut |id, old, new| {
            if old.is_some_and(|o| new.is_none_or(|n| !Arc::ptr_eq(o, n))) {
                f(Redefined::Object(*id));
            }
        });
        self.roles_given
            .each_change(&later.roles_given, &mut |member, old, new| {
                if old.map(|o| o.as_ptr()) != new.map(|n| n.as_ptr()) {
                    f(Redefined::Object(*member));
                }
            });
        let mut shared = false;
        self.namespaces
            .each_change(&later.namespaces, &mut |_, old, new| {
                shared |= old.is_some_and(|o| new.is_none_or(|n| !Arc::ptr_eq(o, n)));
            });
        self.types.each_change(&later.types, &mut |_, old, new| {
            shared |= old.is_some_and(|o| new.is_none_or(|n| !Arc::ptr_eq(o, n)));
        });
        self.extensions
            .each_change(&later.extensions, &mut |_, old, new| {
                shared |= old.is_some_and(|o| new.is_none_or(|n| !Arc::ptr_eq(o, n)));
            });
        if shared {
            f(Redefined::Shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Membership, Role};
    use crate::schema::{BOOTSTRAP_ROLE, Change, Namespace, Object, SequenceDef};

    fn redefined(before: &Schema, change: Change) -> Vec<Redefined> {
        let mut all = Vec::new();
        before.each_redefined(&before.apply(&[change]), &mut |r| all.push(r));
        all
    }

    fn sequence(id: Oid) -> Object {
        Object::Sequence(SequenceDef {
            id,
            namespace: crate::schema::PUBLIC,
            name: format!("s{id}"),
            owner: BOOTSTRAP_ROLE,
            type_oid: 20,
            start: 1,
            increment: 1,
            min: 1,
            max: 9,
            cycle: false,
            cache: 1,
            owned_by: None,
            generation: 1,
            restart: None,
            acl: vec![],
        })
    }

    fn member(role: Oid, member: Oid) -> Object {
        Object::Member(Membership {
            id: 90_000 + role,
            role,
            member,
            grantor: BOOTSTRAP_ROLE,
            admin: false,
        })
    }

    #[test]
    fn what_is_new_redefines_nothing_and_what_changes_is_named() {
        let (clerk, group) = (20_001, 20_002);
        let made = [
            Change::Put(Object::Role(Role::new(clerk, "clerk"))),
            Change::Put(Object::Role(Role::new(group, "staff"))),
            Change::Put(sequence(30_002)),
        ];
        let s = Schema::bootstrap("canon");
        for change in &made {
            assert_eq!(redefined(&s, change.clone()), [], "{change:?}");
        }
        let s = s.apply(&made);
        let object = |id| vec![Redefined::Object(id)];
        let put = |o| redefined(&s, Change::Put(o));
        assert_eq!(put(sequence(30_002)), object(30_002));
        assert_eq!(put(sequence(30_003)), []);
        assert_eq!(redefined(&s, Change::Drop(30_002)), object(30_002));
        assert_eq!(put(Object::Role(Role::new(clerk, "clerk"))), object(clerk));
        assert_eq!(put(member(group, clerk)), object(clerk));
        let given = s.apply(&[Change::Put(member(group, clerk))]);
        let taken = redefined(&given, Change::Drop(90_000 + group));
        assert_eq!(taken, object(clerk));
        let schema = |id| {
            Object::Namespace(Namespace {
                id,
                name: format!("n{id}"),
                owner: BOOTSTRAP_ROLE,
                acl: vec![],
            })
        };
        assert_eq!(put(schema(40_001)), []);
        assert_eq!(put(schema(crate::schema::PUBLIC)), [Redefined::Shared]);
    }
}
