//! DROP TABLE, INDEX, SEQUENCE, VIEW, SCHEMA; CREATE and ALTER SCHEMA; TRUNCATE.

use super::depend::Node;
use super::privileges;
use super::work::Work;
use crate::catalog::Resolved;
use base::schema::{DefaultFor, Namespace, Object, Relation, privilege};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::{
    AlterSchemaOperation, CascadeOption, ObjectName, ObjectType, Owner, SchemaName, Truncate,
    TruncateIdentityOption,
};

impl Work<'_> {
    pub(super) fn drop_statement(
        &mut self,
        kind: ObjectType,
        if_exists: bool,
        names: &[ObjectName],
        cascade: bool,
    ) -> Result<String> {
        let what = match kind {
            ObjectType::Table => "table",
            ObjectType::View => "view",
            ObjectType::Index => "index",
            ObjectType::Sequence => "sequence",
            ObjectType::Schema => return self.drop_schemas(if_exists, names, cascade),
            ObjectType::Role | ObjectType::User => return self.drop_roles(if_exists, names),
            ObjectType::Database => return Err(Error::unsupported("DROP DATABASE")),
            ObjectType::Type => return self.drop_types(names, if_exists, cascade),
            ObjectType::MaterializedView if if_exists => {
                for n in names {
                    self.notice(
                        SqlState([b'0'; 5]),
                        format!("materialized view \"{n}\" does not exist, skipping"),
                    );
                }
                return Ok("DROP MATERIALIZED VIEW".into());
            }
            other => return Err(Error::unsupported(format!("DROP {other}"))),
        };
        let tag = format!("DROP {}", what.to_uppercase());
        let mut roots = vec![];
        for name in names {
            let Some(found) = self.find(name)? else {
                self.missing(what, name, if_exists)?;
                continue;
            };
            let node = self.droppable(what, &found)?;
            if !roots.contains(&node) {
                roots.push(node);
            }
        }
        let shown = match roots.as_slice() {
            [one] => self.describe(*one),
            _ => String::new(),
        };
        self.drop_nodes(&roots, cascade, &shown)?;
        Ok(tag)
    }

    /// A name that means nothing: an error, or a NOTICE with IF EXISTS.
    fn missing(&mut self, what: &str, name: &ObjectName, if_exists: bool) -> Result<()> {
        let (ns, rel) = self.split(name)?;
        let (code, message) = match ns {
            Some(n) if self.schema.namespace_named(&n).is_none() => (
                SqlState::INVALID_SCHEMA_NAME,
                format!("schema \"{n}\" does not exist"),
            ),
            _ if what == "index" => (
                SqlState::UNDEFINED_OBJECT,
                format!("index \"{rel}\" does not exist"),
            ),
            _ => (
                SqlState::UNDEFINED_TABLE,
                format!("{what} \"{rel}\" does not exist"),
            ),
        };
        if !if_exists {
            return Err(Error::new(code, message));
        }
        self.notice(SqlState([b'0'; 5]), format!("{message}, skipping"));
        Ok(())
    }

    /// The node of a relation of the right kind that the role owns.
    fn droppable(&self, what: &str, found: &Resolved) -> Result<Node> {
        let (kind, owner, node) = match found {
            Resolved::Relation(Relation::Table(t)) => {
                ("table", t.def.owner, Node::Relation(t.def.id))
            }
            Resolved::Relation(Relation::View(v)) => ("view", v.owner, Node::Relation(v.id)),
            Resolved::Relation(Relation::Sequence(s)) => {
                ("sequence", s.owner, Node::Relation(s.id))
            }
            Resolved::Index(t, i) => {
                let index = &t.def.indexes[*i];
                ("index", t.def.owner, Node::Index(t.def.id, index.id))
            }
            Resolved::Virtual(_) => return Err(self.wrong_kind(found, what)),
        };
        if kind != what {
            let article = if kind == "index" { "an" } else { "a" };
            return Err(self.wrong_kind(found, what).hint(format!(
                "Use DROP {} to remove {article} {kind}.",
                kind.to_uppercase()
            )));
        }
        // The owner of a schema may drop what others made in it.
        let schema = self.schema.namespace(found.namespace());
        if schema.is_none_or(|n| !self.has_rights_of(n.owner)) {
            self.must_own(kind, found.name(), owner)?;
        }
        let requires = |object: &str, by: String| {
            Err(Error::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop {object} because {by} requires it"),
            )
            .hint(format!("You can drop {by} instead.")))
        };
        match found {
            Resolved::Index(t, i) if t.def.indexes[*i].constraint => {
                let name = self.shown(t.def.indexes[*i].id);
                requires(&format!("index {name}"), self.describe(node))
            }
            Resolved::Relation(Relation::Sequence(s)) => match s.owned_by {
                Some((t, c)) if self.column_has_identity(t, c) => {
                    let column = self.describe(Node::Column(t, c));
                    requires(&format!("sequence {}", self.shown(s.id)), column)
                }
                _ => Ok(node),
            },
            _ => Ok(node),
        }
    }

    fn column_has_identity(&self, table: Oid, column: base::ColumnIdx) -> bool {
        let t = self.schema.table(table);
        t.is_some_and(|t| t.def.columns[column as usize].identity.is_some())
    }

    fn drop_schemas(
        &mut self,
        if_exists: bool,
        names: &[ObjectName],
        cascade: bool,
    ) -> Result<String> {
        let mut roots = vec![];
        for name in names {
            let (_, name) = self.split(name)?;
            let Some(n) = self.schema.namespace_named(&name).cloned() else {
                if if_exists {
                    self.notice(
                        SqlState([b'0'; 5]),
                        format!("schema \"{name}\" does not exist, skipping"),
                    );
                    continue;
                }
                self.namespace(&name)?;
                continue;
            };
            self.must_own("schema", &n.name, n.owner)?;
            if crate::catalog::is_system(n.id) {
                return Err(Error::new(
                    SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!(
                        "cannot drop schema {name} because it is required by the database system"
                    ),
                ));
            }
            if let Some(e) = self.extension_in(n.id) {
                let what = format!("cannot drop schema {name} because other objects depend on it");
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, what)
                    .detail(format!("extension {e} depends on schema {name}"))
                    .hint("Drop the extension first."));
            }
            roots.push(Node::Namespace(n.id));
        }
        let shown = match roots.as_slice() {
            [one] => self.describe(*one),
            _ => String::new(),
        };
        self.drop_nodes(&roots, cascade, &shown)?;
        Ok("DROP SCHEMA".into())
    }

    pub(super) fn create_schema(
        &mut self,
        name: &SchemaName,
        if_not_exists: bool,
    ) -> Result<String> {
        let tag = "CREATE SCHEMA".to_string();
        let (name, owner) = match name {
            SchemaName::Simple(n) => (self.split(n)?.1, self.ctx.role),
            SchemaName::UnnamedAuthorization(role) => {
                let role = crate::catalog::fold(role);
                let id = self.role_named(&role)?.id;
                (role, id)
            }
            SchemaName::NamedAuthorization(n, role) => {
                let role = crate::catalog::fold(role);
                (self.split(n)?.1, self.role_named(&role)?.id)
            }
        };
        self.may_create_schemas()?;
        self.may_give_to(owner)?;
        if self.schema.namespace_named(&name).is_some() {
            if if_not_exists {
                self.notice(
                    SqlState::DUPLICATE_SCHEMA,
                    format!("schema \"{name}\" already exists, skipping"),
                );
                return Ok(tag);
            }
            return Err(Error::new(
                SqlState::DUPLICATE_SCHEMA,
                format!("schema \"{name}\" already exists"),
            ));
        }
        self.free_schema_name(&name)?;
        let id = self.oid();
        self.put(Object::Namespace(Namespace {
            id,
            name,
            owner,
            acl: self.born_with(DefaultFor::Schemas, owner, 0),
        }));
        Ok(tag)
    }

    /// 42501 unless the role has what PostgreSQL's CREATE on the database is here: CREATEDB.
    fn may_create_schemas(&self) -> Result<()> {
        let may = |r: &std::sync::Arc<base::schema::Role>| r.superuser || r.createdb;
        if self.schema.role(self.ctx.role).is_some_and(may) {
            return Ok(());
        }
        Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied for database {}", self.ctx.database),
        ))
    }

    /// 42501 unless the role may make that role the owner of something.
    pub(super) fn may_give_to(&self, owner: Oid) -> Result<()> {
        if self.schema.is_member_of(self.ctx.role, owner) {
            return Ok(());
        }
        let name = self.schema.role(owner).map_or("?", |r| r.name.as_str());
        Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("must be member of role \"{name}\""),
        ))
    }

    fn free_schema_name(&self, name: &str) -> Result<()> {
        if name.starts_with("pg_") {
            return Err(Error::new(
                SqlState([b'4', b'2', b'9', b'3', b'9']),
                format!("unacceptable schema name \"{name}\""),
            )
            .detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        Ok(())
    }

    pub(super) fn alter_schema(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        operations: &[AlterSchemaOperation],
    ) -> Result<String> {
        let (_, name) = self.split(name)?;
        if if_exists && self.schema.namespace_named(&name).is_none() {
            self.notice(
                SqlState([b'0'; 5]),
                format!("schema \"{name}\" does not exist, skipping"),
            );
            return Ok("ALTER SCHEMA".into());
        }
        let id = self.namespace(&name)?;
        for o in operations {
            let mut n = (**self.schema.namespace(id).expect("found")).clone();
            self.must_own("schema", &n.name, n.owner)?;
            self.may_create_schemas()?;
            match o {
                AlterSchemaOperation::Rename { name: to } => {
                    let (_, to) = self.split(to)?;
                    if crate::catalog::is_system(id) {
                        return Err(Error::new(
                            SqlState::INSUFFICIENT_PRIVILEGE,
                            format!("permission denied for schema {}", n.name),
                        ));
                    }
                    if self.schema.namespace_named(&to).is_some() {
                        return Err(Error::new(
                            SqlState::DUPLICATE_SCHEMA,
                            format!("schema \"{to}\" already exists"),
                        ));
                    }
                    self.free_schema_name(&to)?;
                    let used = self.schema.relations().any(|r| match r {
                        Relation::View(_) => true,
                        r => {
                            Resolved::Relation(r.clone()).namespace() == id
                                && matches!(r, Relation::Sequence(_))
                        }
                    });
                    if used {
                        return Err(Error::unsupported(
                            "renaming a schema that holds sequences, or beside views,",
                        ));
                    }
                    let types = self.schema.user_types();
                    for t in types.filter(|t| t.def.namespace == id) {
                        self.refuse_named_in_text(&t.def, "renaming the schema of")?;
                    }
                    n.name = to;
                    self.put(Object::Namespace(n));
                }
                AlterSchemaOperation::OwnerTo { owner } => {
                    n.owner = self.owner(owner)?;
                    self.may_give_to(n.owner)?;
                    self.put(Object::Namespace(n));
                }
                _ => return Err(Error::unsupported("this form of ALTER SCHEMA")),
            }
        }
        Ok("ALTER SCHEMA".into())
    }

    /// The role that OWNER TO names.
    pub(super) fn owner(&self, owner: &Owner) -> Result<Oid> {
        match owner {
            Owner::Ident(i) => Ok(self.role_named(&crate::catalog::fold(i))?.id),
            Owner::CurrentRole | Owner::CurrentUser => Ok(self.ctx.role),
            Owner::SessionUser => Ok(self.ctx.session_user),
        }
    }

    pub(super) fn truncate(&mut self, t: &Truncate) -> Result<String> {
        let mut tables: Vec<Oid> = vec![];
        for target in &t.table_names {
            let table = match self.find(&target.name)? {
                None if t.if_exists => continue,
                _ => match self.resolve(&target.name)? {
                    Resolved::Relation(Relation::Table(t)) => t,
                    other => return Err(self.wrong_kind(&other, "table")),
                },
            };
            let relation = Relation::Table(table.clone());
            let role = self.ctx.role;
            privileges::check_relation(&self.schema, role, &relation, privilege::TRUNCATE)?;
            if !tables.contains(&table.def.id) {
                tables.push(table.def.id);
            }
        }
        let cascade = matches!(t.cascade, Some(CascadeOption::Cascade));
        let mut at = 0;
        while at < tables.len() {
            let id = tables[at];
            at += 1;
            let table = self.schema.table(id).expect("listed").clone();
            for (from, _) in &table.referenced_by {
                if tables.contains(from) {
                    continue;
                }
                let name = self.shown(*from);
                if !cascade {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "cannot truncate a table referenced in a foreign key constraint",
                    )
                    .detail(format!(
                        "Table \"{name}\" references \"{}\".",
                        table.def.name
                    ))
                    .hint(format!(
                        "Truncate table \"{name}\" at the same time, or use TRUNCATE ... CASCADE."
                    )));
                }
                let relation = Relation::Table(self.schema.table(*from).expect("linked").clone());
                let role = self.ctx.role;
                privileges::check_relation(&self.schema, role, &relation, privilege::TRUNCATE)?;
                self.notice(
                    SqlState([b'0'; 5]),
                    format!("truncate cascades to table \"{name}\""),
                );
                tables.push(*from);
            }
        }
        let restart = matches!(t.identity, Some(TruncateIdentityOption::Restart));
        tables
            .iter()
            .try_for_each(|t| self.not_awaited("TRUNCATE", *t))?;
        for id in tables {
            let mut def = self.schema.table(id).expect("listed").def.clone();
            def.storage = self.oid();
            self.put(Object::Table(def));
            if restart {
                for s in self.owned_sequences(|t, _| t == id) {
                    if let Some(Relation::Sequence(s)) = self.schema.relation(s).cloned() {
                        self.must_own("sequence", &s.name, s.owner)?;
                        self.restart_sequence(&s);
                    }
                }
            }
        }
        Ok("TRUNCATE TABLE".into())
    }
}
