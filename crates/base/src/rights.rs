//! The roles whose rights a role has, and the roles as which a role may act.
//!
//! A role has the rights of the roles that it is a member of, and of theirs, as far as each role on the way inherits. It may act as any of them
//! (SET ROLE) whether or not it inherits.
//!
//! Left out on purpose: privileges on objects, which are those that `sql` checks.

use crate::Oid;
use crate::membership::{Membership, PREDEFINED_MEMBERS};
use crate::schema::{BOOTSTRAP_ROLE, Schema};

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

    /// The role and all roles that the role is a member of, directly or through others; `inherited`: only those whose rights the role has.
    fn reach(&self, role: Oid, inherited: bool) -> Vec<Oid> {
        let mut found = vec![role];
        if self.members().next().is_none() {
            return found;
        }
        let mut at = 0;
        while let Some(&member) = found.get(at) {
            at += 1;
            if inherited && self.role(member).is_none_or(|r| r.no_inherit) {
                continue;
            }
            for m in self.memberships().filter(|m| m.member == member) {
                if !found.contains(&m.role) {
                    found.push(m.role);
                }
            }
        }
        found
    }

    /// The roles whose rights the role has, the role itself first.
    pub fn rights_of(&self, role: Oid) -> Vec<Oid> {
        self.reach(role, true)
    }

    /// Whether the role has the rights of another: it is that role, a superuser, or inherits from it.
    pub fn has_rights_of(&self, role: Oid, of: Oid) -> bool {
        role == of
            || self.role(role).is_some_and(|r| r.superuser)
            || self.rights_of(role).contains(&of)
    }

    /// Whether the role may act as another: it is that role, a superuser, or a member.
    pub fn is_member_of(&self, role: Oid, of: Oid) -> bool {
        role == of
            || self.role(role).is_some_and(|r| r.superuser)
            || self.is_plain_member_of(role, of)
    }

    /// Whether the role is that role or a member of it; a superuser is not by that alone.
    pub fn is_plain_member_of(&self, role: Oid, of: Oid) -> bool {
        self.reach(role, false).contains(&of)
    }

    /// Whether the role may grant that role: a superuser, or a role that has it with the admin option.
    pub fn may_admin(&self, role: Oid, of: Oid) -> bool {
        if self.role(role).is_some_and(|r| r.superuser) {
            return true;
        }
        let mine = self.reach(role, false);
        self.members()
            .any(|m| m.admin && m.role == of && mine.contains(&m.member))
    }
}
