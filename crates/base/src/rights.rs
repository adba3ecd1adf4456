//! Memberships of roles, followed: which rights come to a role, and which roles it may take by SET ROLE.
//!
//! A role has the rights of the roles that it is a member of, and of theirs, as far as each role on the way inherits. It may act as any of them
//! (SET ROLE) whether or not it inherits.
//!
//! Left out on purpose: privileges on objects, which are those that `sql` checks.

use crate::Oid;
use crate::membership::{Membership, PREDEFINED_MEMBERS};
use crate::schema::{BOOTSTRAP_ROLE, Schema};

/// A role and those that it reaches. Every statement of a role without rights over everything asks for them, for each relation, so a role that is
/// a member of none takes no memory and no look at the memberships of others.
#[derive(Clone, Debug)]
pub struct Roles {
    role: Oid,
    more: Vec<Oid>,
}

impl Roles {
    pub fn contains(&self, role: Oid) -> bool {
        self.role == role || self.more.contains(&role)
    }

    /// Each once, the role itself first.
    pub fn iter(&self) -> impl Iterator<Item = Oid> {
        std::iter::once(self.role).chain(self.more.iter().copied())
    }
}

impl Schema {
    /// All memberships that are stored, and those of predefined roles in each other.
    pub fn memberships(&self) -> impl Iterator<Item = Membership> {
        let own = self.members().map(|m| (**m).clone());
        let fixed = PREDEFINED_MEMBERS
            .iter()
            .zip(1..)
            .map(|(&(role, member), n)| Membership {
                id: n,
                role,
                member,
                grantor: BOOTSTRAP_ROLE,
                admin: false,
            });
        fixed.chain(own)
    }

    /// The roles that the role was made a member of, each at least once.
    fn given(&self, member: Oid) -> impl Iterator<Item = Oid> {
        let fixed = PREDEFINED_MEMBERS.iter().filter(move |m| m.1 == member);
        let own = self.roles_given.get(&member).map_or(&[][..], |r| &r[..]);
        fixed.map(|m| m.0).chain(own.iter().copied())
    }

    /// `role`, and each role that it is a member of, directly or through others. `inherited`: memberships without INHERIT are not followed.
    fn reach(&self, role: Oid, inherited: bool) -> Roles {
        let mut found = Roles {
            role,
            more: Vec::new(),
        };
        for at in 0.. {
            let next = found.iter().nth(at);
            let Some(member) = next else { break };
            if inherited && self.role(member).is_none_or(|r| r.no_inherit) {
                continue;
            }
            for role in self.given(member) {
                if !found.contains(role) {
                    found.more.push(role);
                }
            }
        }
        found
    }

    /// `role`, and each role that gives its rights to `role`.
    pub fn rights_of(&self, role: Oid) -> Roles {
        self.reach(role, true)
    }

    /// Whether the role has the rights of another: it is that role, a superuser, or inherits from it.
    pub fn has_rights_of(&self, role: Oid, of: Oid) -> bool {
        role == of
            || self.role(role).is_some_and(|r| r.superuser)
            || self.rights_of(role).contains(of)
    }

    /// Whether the role may act as another: it is that role, a superuser, or a member.
    pub fn is_member_of(&self, role: Oid, of: Oid) -> bool {
        role == of
            || self.role(role).is_some_and(|r| r.superuser)
            || self.is_plain_member_of(role, of)
    }

    /// Whether the role is that role or a member of it; a superuser is not by that alone.
    pub fn is_plain_member_of(&self, role: Oid, of: Oid) -> bool {
        self.reach(role, false).contains(of)
    }

    /// Whether the role may grant that role: a superuser, or a role that has it with the admin option.
    pub fn may_admin(&self, role: Oid, of: Oid) -> bool {
        if self.role(role).is_some_and(|r| r.superuser) {
            return true;
        }
        let mine = self.reach(role, false);
        self.members()
            .any(|m| m.admin && m.role == of && mine.contains(m.member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{READ_ALL_STATS, Role};
    use crate::schema::{Change, Object};
    use std::collections::{BTreeMap, BTreeSet};

    const MONITOR: Oid = 3373;

    fn member(id: Oid, role: Oid, member: Oid) -> Change {
        Change::Put(Object::Member(Membership {
            id,
            role,
            member,
            grantor: BOOTSTRAP_ROLE,
            admin: false,
        }))
    }

    fn reached(s: &Schema, role: Oid, inherited: bool) -> BTreeSet<Oid> {
        let roles = s.reach(role, inherited);
        let all: BTreeSet<Oid> = roles.iter().collect();
        assert_eq!(all.len(), roles.iter().count(), "each once");
        assert!(all.iter().all(|r| roles.contains(*r)) && !roles.contains(1));
        all
    }

    #[test]
    fn memberships_are_followed_as_they_come_and_go() {
        let mut schema = Schema::bootstrap("canon");
        let role = |id: Oid, no_inherit| {
            let mut role = Role::new(id, &format!("r{id}"));
            role.no_inherit = no_inherit;
            Change::Put(Object::Role(role))
        };
        let roles: Vec<Oid> = (100..108).collect();
        // 103 inherits nothing.
        let all: Vec<Change> = roles.iter().map(|id| role(*id, *id == 103)).collect();
        schema = schema.apply(&all);
        assert!(schema.reach(100, true).more.capacity() == 0, "no memory");

        // Each step makes or ends one membership, or makes it again with other roles. The model is a list of edges.
        let mut edges: BTreeMap<Oid, (Oid, Oid)> = BTreeMap::new();
        for step in 0..400 {
            let (a, b) = (100 + step * 3 / 2 % 8, 100 + step * 5 / 3 % 8);
            let id = 200 + step * 7 % 12;
            if step % 4 == 0 && edges.remove(&id).is_some() {
                schema = schema.apply(&[Change::Drop(id)]);
            } else if a < b {
                edges.insert(id, (a, b));
                schema = schema.apply(&[member(id, a, b)]);
            }
            for from in &roles {
                for inherited in [false, true] {
                    let mut want = BTreeSet::from([*from]);
                    loop {
                        let follows =
                            |m: &&(Oid, Oid)| want.contains(&m.1) && !(inherited && m.1 == 103);
                        let next: Vec<Oid> = edges.values().filter(follows).map(|m| m.0).collect();
                        let before = want.len();
                        want.extend(next);
                        if want.len() == before {
                            break;
                        }
                    }
                    assert_eq!(
                        reached(&schema, *from, inherited),
                        want,
                        "step {step}, {from}"
                    );
                }
            }
        }
        let schema = schema.apply(&[member(300, MONITOR, 100)]);
        assert!(schema.has_rights_of(100, READ_ALL_STATS) && !schema.has_rights_of(101, MONITOR));
        // As it is read from a checkpoint.
        let again = Schema::default().apply(&schema.dump());
        for from in roles {
            assert_eq!(reached(&again, from, true), reached(&schema, from, true));
        }
    }
}
