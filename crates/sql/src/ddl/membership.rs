//! GRANT role TO role, REVOKE role FROM role; IN ROLE, ROLE and ADMIN of CREATE ROLE; ALTER GROUP.
//!
//! Who may: a superuser; a role with CREATEROLE, for roles that are not superusers; a role that has the granted one with the admin option. A circle is
//! 0LP01.
//!
//! Left out on purpose: GRANTED BY another role than the current one (0A000).

use super::extra::Words;
use super::work::Work;
use crate::catalog::fold;
use base::membership::{DATABASE_OWNER, Membership};
use base::schema::Object;
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

/// Names of roles that a new role is a member of, and of those that become its members.
#[derive(Clone, Debug, Default)]
pub struct NewMemberships {
    pub of: Vec<String>,
    pub members: Vec<String>,
    /// Members with the admin option.
    pub admins: Vec<String>,
}

/// GRANT or REVOKE of roles.
#[derive(Clone, Debug)]
pub struct RoleGrant {
    give: bool,
    /// WITH ADMIN OPTION, or ADMIN OPTION FOR.
    admin: bool,
    roles: Vec<Ident>,
    members: Vec<Ident>,
    granted_by: Option<Ident>,
    /// Said by ALTER GROUP.
    group: bool,
}

impl Words<'_> {
    pub(super) fn role_list(&mut self) -> Result<Vec<Ident>> {
        let mut all = vec![self.ident()?];
        while self.0.consume_token(&Token::Comma) {
            self.eat("group");
            all.push(self.ident()?);
        }
        Ok(all)
    }

    /// The statement, if it names no object: there is no ON before TO or FROM.
    pub(super) fn role_grant(&mut self) -> Result<Option<RoleGrant>> {
        let give = self.at("grant");
        let end = if give { "to" } else { "from" };
        let mut n = 1;
        loop {
            let word = self.peek(n);
            if word.as_deref() == Some(end) {
                break;
            }
            let token = &self.0.peek_nth_token(n).token;
            let name = matches!(token, Token::Word(_) | Token::Comma);
            if !name || matches!(word.as_deref(), Some("on")) {
                return Ok(None);
            }
            n += 1;
        }
        self.0.next_token();
        let admin_for = !give && self.eat("admin option for");
        let roles = self.role_list()?;
        self.expect(end)?;
        self.eat("group");
        let members = self.role_list()?;
        let admin = give && (self.eat("with admin option") || self.eat("with admin true"));
        let granted_by = match self.eat("granted by") {
            true => Some(self.ident()?),
            false => None,
        };
        let _ = !give && (self.eat("restrict") || self.eat("cascade"));
        Ok(Some(RoleGrant {
            give,
            admin: admin || admin_for,
            roles,
            members,
            granted_by,
            group: false,
        }))
    }

    /// ALTER GROUP g ADD USER a, b and DROP USER a.
    pub(super) fn alter_group(&mut self) -> Result<Option<RoleGrant>> {
        if !self.at("alter group") {
            return Ok(None);
        }
        self.expect("alter group")?;
        let role = self.ident()?;
        let give = self.eat("add user");
        if !give {
            self.expect("drop user")?;
        }
        Ok(Some(RoleGrant {
            give,
            admin: false,
            roles: vec![role],
            members: self.role_list()?,
            granted_by: None,
            group: true,
        }))
    }

    /// IN ROLE, ROLE, USER, ADMIN among the options of CREATE ROLE.
    pub(super) fn new_memberships(&mut self, m: &mut NewMemberships) -> Result<()> {
        let to = if self.eat("in role") || self.eat("in group") {
            &mut m.of
        } else if self.eat("role") || self.eat("user") {
            &mut m.members
        } else {
            self.expect("admin")?;
            &mut m.admins
        };
        to.extend(self.role_list()?.iter().map(fold));
        Ok(())
    }
}

impl Work<'_> {
    pub(super) fn grant_roles(&mut self, g: &RoleGrant) -> Result<String> {
        if let Some(by) = &g.granted_by {
            let by = self.role_named(&fold(by))?.id;
            if by != self.ctx.role {
                return Err(Error::unsupported("GRANTED BY another role"));
            }
        }
        let ids = |names: &[Ident]| {
            let one = |n: &Ident| self.role_named(&fold(n)).map(|r| r.id);
            names.iter().map(one).collect::<Result<Vec<Oid>>>()
        };
        let (roles, members) = (ids(&g.roles)?, ids(&g.members)?);
        for &role in &roles {
            self.may_grant_role(role)?;
            for &member in &members {
                match g.give {
                    true => self.add_member(role, member, g.admin)?,
                    false => self.remove_member(role, member, g.admin),
                }
            }
        }
        Ok(match (g.group, g.give) {
            (true, _) => "ALTER ROLE".into(),
            (false, true) => "GRANT ROLE".into(),
            (false, false) => "REVOKE ROLE".into(),
        })
    }

    /// What CREATE ROLE says of the new role's memberships.
    pub(super) fn join(&mut self, role: Oid, m: &NewMemberships) -> Result<()> {
        for name in &m.of {
            let of = self.role_named(name)?.id;
            self.may_grant_role(of)?;
            self.add_member(of, role, false)?;
        }
        for (names, admin) in [(&m.members, false), (&m.admins, true)] {
            for name in names {
                let member = self.role_named(name)?.id;
                self.add_member(role, member, admin)?;
            }
        }
        Ok(())
    }

    fn name_of(&self, role: Oid) -> String {
        self.schema
            .role(role)
            .map_or("?".into(), |r| r.name.clone())
    }

    /// 42501 unless the current role may grant this one.
    fn may_grant_role(&self, role: Oid) -> Result<()> {
        let of = self.schema.role(role);
        let me = self.schema.role(self.ctx.role);
        let why = if of.is_some_and(|r| r.superuser) {
            if self.superuser() {
                return Ok(());
            }
            "must be superuser to alter superusers".to_owned()
        } else {
            if me.is_some_and(|r| r.createrole) || self.schema.may_admin(self.ctx.role, role) {
                return Ok(());
            }
            format!("must have admin option on role \"{}\"", self.name_of(role))
        };
        Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, why))
    }

    fn add_member(&mut self, role: Oid, member: Oid, admin: bool) -> Result<()> {
        let refused = |why: String| Err(Error::new(SqlState(*b"0LP01"), why));
        if role == DATABASE_OWNER {
            let name = self.name_of(role);
            return refused(format!("role \"{name}\" cannot have explicit members"));
        }
        if self.schema.is_plain_member_of(role, member) {
            let (role, member) = (self.name_of(role), self.name_of(member));
            return refused(format!("role \"{role}\" is a member of role \"{member}\""));
        }
        let there = self.membership(role, member);
        let id = match &there {
            Some(m) if m.admin || !admin => {
                let (role, member) = (self.name_of(role), self.name_of(member));
                let said = format!("role \"{member}\" is already a member of role \"{role}\"");
                self.notice(SqlState([b'0'; 5]), said);
                return Ok(());
            }
            Some(m) => m.id,
            None => self.oid(),
        };
        let grantor = self.ctx.role;
        self.put(Object::Member(Membership {
            id,
            role,
            member,
            grantor,
            admin,
        }));
        Ok(())
    }

    /// Takes the membership away, or only its admin option.
    fn remove_member(&mut self, role: Oid, member: Oid, admin_only: bool) {
        match self.membership(role, member) {
            None => {
                let (role, member) = (self.name_of(role), self.name_of(member));
                let said = format!("role \"{member}\" is not a member of role \"{role}\"");
                self.say("WARNING", SqlState(*b"01000"), said, String::new());
            }
            Some(m) if admin_only => self.put(Object::Member(Membership { admin: false, ..m })),
            Some(m) => self.drop_object(m.id),
        }
    }

    fn membership(&self, role: Oid, member: Oid) -> Option<Membership> {
        let mut all = self.schema.members();
        all.find(|m| (m.role, m.member) == (role, member))
            .map(|m| (**m).clone())
    }

    /// Forgets the memberships of a role that is dropped, and those in it.
    pub(super) fn drop_memberships_of(&mut self, role: Oid) {
        let of: Vec<Oid> = self
            .schema
            .members()
            .filter(|m| m.role == role || m.member == role)
            .map(|m| m.id)
            .collect();
        of.into_iter().for_each(|id| self.drop_object(id));
    }
}
