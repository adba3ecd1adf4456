//! CREATE, ALTER and DROP TYPE for enums; of other types what is the same for all.
//!
//! A changed type comes with the tables that have columns of it, so that their rows are read with its new labels at once. A new label may
//! be used in the transaction that adds it, which PostgreSQL refuses (55P04): ranks need no index of their own.
//!
//! Left out on purpose: base and range types.

use super::composite::AttributeChange;
use super::depend::Node;
use super::domain::{Alter, Part};
use super::privileges;
use super::work::Work;
use crate::catalog;
use crate::catalog::user_types::user_type;
use base::schema::{Object, Relation, TypeDef, TypeKind, UserTypeOf, privilege};
use base::user_type::{Label, MAX_INTERNED, MAX_LABELS, interned_bytes, rank_between, ranks};
use base::{Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{
    AlterType, AlterTypeAddValue, AlterTypeAddValuePosition, AlterTypeOperation, DataType, Ident,
    ObjectName, UserDefinedTypeRepresentation,
};
use std::sync::Arc;

/// Statements about types that the SQL parser does not know.
#[derive(Clone, Debug)]
pub enum TypeStatement {
    /// ALTER TYPE OWNER TO.
    Owner { name: ObjectName, owner: Ident },
    /// ALTER TYPE SET SCHEMA.
    Schema { name: ObjectName, schema: Ident },
    /// GRANT and REVOKE USAGE ON TYPE.
    Usage {
        give: bool,
        names: Vec<ObjectName>,
        roles: Vec<Ident>,
    },
    CreateDomain {
        name: ObjectName,
        data_type: DataType,
        parts: Vec<Part>,
    },
    AlterDomain {
        name: ObjectName,
        change: Box<Alter>,
    },
    DropDomain {
        names: Vec<ObjectName>,
        if_exists: bool,
        cascade: bool,
    },
    /// ALTER TYPE ADD, DROP, ALTER and RENAME ATTRIBUTE.
    Attributes {
        name: ObjectName,
        changes: Vec<AttributeChange>,
    },
}

impl TypeStatement {
    /// The command, as errors name it.
    pub(super) fn command(&self) -> &'static str {
        match self {
            TypeStatement::Owner { .. }
            | TypeStatement::Schema { .. }
            | TypeStatement::Attributes { .. } => "ALTER TYPE",
            TypeStatement::Usage { give: true, .. } => "GRANT",
            TypeStatement::Usage { give: false, .. } => "REVOKE",
            TypeStatement::CreateDomain { .. } => "CREATE DOMAIN",
            TypeStatement::AlterDomain { .. } => "ALTER DOMAIN",
            TypeStatement::DropDomain { .. } => "DROP DOMAIN",
        }
    }
}

fn exists(what: &str, name: &str) -> Error {
    Error::new(
        SqlState::DUPLICATE_OBJECT,
        format!("{what} \"{name}\" already exists"),
    )
}

fn label_text(label: &Ident) -> Result<String> {
    if label.value.is_empty() || label.value.len() > catalog::MAX_NAME {
        let what = format!("invalid enum label \"{}\"", label.value);
        return Err(Error::new(SqlState::INVALID_NAME, what).detail(format!(
            "Labels must be {} bytes or less.",
            catalog::MAX_NAME
        )));
    }
    Ok(label.value.clone())
}

pub(super) fn check_room() -> Result<()> {
    if interned_bytes() < MAX_INTERNED {
        return Ok(());
    }
    Err(Error::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("definitions of types have taken {MAX_INTERNED} bytes since the server started"),
    )
    .hint("Restart the server: versions of definitions that are out of use are kept until then."))
}

/// The labels of an enum: 42809 for another type.
fn labels_of(def: &mut TypeDef) -> Result<&mut Vec<Label>> {
    match &mut def.kind {
        TypeKind::Enum(labels) => Ok(labels),
        TypeKind::Domain(_) | TypeKind::Composite(_) => Err(Error::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{}\" is not an enum", def.name),
        )),
    }
}

fn place_of(labels: &[Label], name: &str) -> Result<usize> {
    let found = labels.iter().position(|l| l.name == name);
    found.ok_or_else(|| {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("\"{name}\" is not an existing enum label"),
        )
    })
}

impl Work<'_> {
    pub(super) fn create_type(
        &mut self,
        name: &ObjectName,
        kind: Option<&UserDefinedTypeRepresentation>,
    ) -> Result<String> {
        match kind {
            Some(UserDefinedTypeRepresentation::Enum { labels }) => self.create_enum(name, labels),
            Some(UserDefinedTypeRepresentation::Composite { attributes }) => {
                self.create_composite(name, attributes)
            }
            Some(UserDefinedTypeRepresentation::Range { .. }) => {
                Err(Error::unsupported("a range type"))
            }
            _ => Err(Error::unsupported("a base type")),
        }
    }

    pub(super) fn type_statement(&mut self, s: &TypeStatement) -> Result<String> {
        match s {
            TypeStatement::Owner { name, owner } => self.type_owner(name, &catalog::fold(owner)),
            TypeStatement::Schema { name, schema } => self.type_schema(name, schema),
            TypeStatement::Usage { give, names, roles } => self.type_usage(*give, names, roles),
            TypeStatement::CreateDomain {
                name,
                data_type,
                parts,
            } => self.create_domain(name, data_type, parts),
            TypeStatement::AlterDomain { name, change } => self.alter_domain(name, change),
            TypeStatement::DropDomain {
                names,
                if_exists,
                cascade,
            } => self.drop_domains(names, *if_exists, *cascade),
            TypeStatement::Attributes { name, changes } => self.alter_attributes(name, changes),
        }
    }

    fn create_enum(&mut self, name: &ObjectName, labels: &[Ident]) -> Result<String> {
        check_room()?;
        let (namespace, name) = self.target(name)?;
        self.type_must_be_free(namespace, &name)?;
        if labels.len() > MAX_LABELS {
            return Err(Error::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("an enum can have at most {MAX_LABELS} labels"),
            ));
        }
        let (id, array) = (self.oid(), self.oid());
        let mut made: Vec<Label> = vec![];
        let mut names = std::collections::HashSet::new();
        for (label, rank) in labels.iter().zip(ranks(labels.len())) {
            let name = label_text(label)?;
            if !names.insert(name.clone()) {
                let what =
                    "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"";
                return Err(Error::new(SqlState::UNIQUE_VIOLATION, what).detail(format!(
                    "Key (enumtypid, enumlabel)=({id}, {name}) already exists."
                )));
            }
            let id = self.oid();
            made.push(Label { id, rank, name });
        }
        self.put(Object::Type(TypeDef {
            id,
            array,
            namespace,
            name,
            owner: self.ctx.role,
            acl: self.type_born_with(namespace),
            kind: TypeKind::Enum(made),
        }));
        Ok("CREATE TYPE".into())
    }

    /// 42710 when a type, or a table or view, has the name.
    pub(super) fn type_must_be_free(&self, namespace: Oid, name: &str) -> Result<()> {
        let relation = self.schema.lookup(namespace, name);
        let relation = relation.and_then(|id| self.schema.relation(id));
        let row_type = matches!(relation, Some(Relation::Table(_) | Relation::View(_)));
        if row_type || self.schema.user_type_named(namespace, name).is_some() {
            return Err(exists("type", name));
        }
        Ok(())
    }

    /// 42710 when the name of a table or view to be made is a type's.
    pub(super) fn no_type_named(&self, namespace: Oid, name: &str) -> Result<()> {
        match self.schema.user_type_named(namespace, name) {
            None => Ok(()),
            Some(t) if matches!(t.def.kind, TypeKind::Composite(_)) => Err(Error::new(
                SqlState::DUPLICATE_TABLE,
                format!("relation \"{name}\" already exists"),
            )),
            Some(_) => Err(exists("type", name).hint(
                "A relation has an associated type of the same name, so you must use a name that doesn't conflict with any existing type.",
            )),
        }
    }

    /// What the name of a user's type means, if anything.
    pub(super) fn find_type(&self, name: &ObjectName) -> Result<Option<Arc<UserTypeOf>>> {
        if let (Some(n), _) = self.split(name)? {
            self.namespace(&n)?;
            privileges::check_named_namespace(&self.schema, self.ctx.role, &n)?;
        }
        let path: Vec<Oid> = catalog::namespaces(&self.schema, self.ctx.search_path).collect();
        let found = user_type(&self.schema, &path, &name.to_string());
        Ok(found.filter(|f| !f.1).map(|f| f.0.clone()))
    }

    /// A type that the role owns: 42704, 42501.
    pub(super) fn own_type(&self, name: &ObjectName) -> Result<TypeDef> {
        let Some(t) = self.find_type(name)? else {
            if catalog::user_types::type_named(
                &self.schema,
                self.ctx.search_path,
                &name.to_string(),
            )
            .is_ok()
            {
                return Err(Error::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    format!("must be owner of type {name}"),
                ));
            }
            return Err(Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type \"{name}\" does not exist"),
            ));
        };
        self.must_own("type", &t.def.name, t.def.owner)?;
        Ok(t.def.clone())
    }

    pub(super) fn alter_type(&mut self, a: &AlterType) -> Result<String> {
        let mut def = self.own_type(&a.name)?;
        match &a.operation {
            AlterTypeOperation::Rename(r) => {
                let name = self.name(&r.new_name);
                self.type_must_be_free(def.namespace, &name)?;
                self.refuse_named_in_text(&def, "renaming")?;
                def.name = name;
            }
            AlterTypeOperation::AddValue(v) => {
                if !self.add_label(&mut def, v)? {
                    return Ok("ALTER TYPE".into());
                }
            }
            AlterTypeOperation::RenameValue(r) => {
                let labels = labels_of(&mut def)?;
                let at = place_of(labels, &r.from.value)?;
                let to = label_text(&r.to)?;
                if labels.iter().any(|l| l.name == to) {
                    return Err(exists("enum label", &to));
                }
                labels[at].name = to;
                let id = def.id;
                self.put_type(def)?;
                self.labels_still_hold(id, &r.from.value)?;
                return Ok("ALTER TYPE".into());
            }
        }
        self.put_type(def)?;
        Ok("ALTER TYPE".into())
    }

    /// Whether there is a new label. 42710, 22023, 54000.
    fn add_label(&mut self, def: &mut TypeDef, v: &AlterTypeAddValue) -> Result<bool> {
        let id = self.oid();
        let name = label_text(&v.value)?;
        let shown = def.name.clone();
        let labels = labels_of(def)?;
        if labels.iter().any(|l| l.name == name) {
            let there = exists("enum label", &name);
            if !v.if_not_exists {
                return Err(there);
            }
            let what = format!("enum label \"{name}\" already exists, skipping");
            self.notice(SqlState::DUPLICATE_OBJECT, what);
            return Ok(false);
        }
        let at = match &v.position {
            None => labels.len(),
            Some(AlterTypeAddValuePosition::Before(n)) => place_of(labels, &n.value)?,
            Some(AlterTypeAddValuePosition::After(n)) => place_of(labels, &n.value)? + 1,
        };
        let before = at.checked_sub(1).map(|i| labels[i].rank);
        let rank = rank_between(before, labels.get(at).map(|l| l.rank));
        let rank = rank.filter(|_| labels.len() < MAX_LABELS).ok_or_else(|| {
            Error::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("there is no room for another label of enum \"{shown}\" in this place"),
            )
            .hint("Make another type with the labels in the wanted order, and change the columns to it.")
        })?;
        labels.insert(at, Label { id, rank, name });
        Ok(true)
    }

    /// Puts a changed type with the tables that have columns of it.
    pub(super) fn put_type(&mut self, def: TypeDef) -> Result<()> {
        check_room()?;
        let id = def.id;
        self.put(Object::Type(def));
        let users = self.schema.relations_of_type(id);
        let tables: Vec<Object> = users
            .filter_map(|r| match r {
                Relation::Table(t) => Some(Object::Table(t.def.clone())),
                _ => None,
            })
            .collect();
        tables.into_iter().for_each(|t| self.put(t));
        Ok(())
    }

    pub(super) fn type_owner(&mut self, name: &ObjectName, owner: &str) -> Result<String> {
        let mut def = self.own_type(name)?;
        let role = self.role_named(owner)?.id;
        if role != def.owner && !self.schema.is_member_of(self.ctx.role, role) {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("must be member of role \"{owner}\""),
            ));
        }
        for (to, _) in def.acl.iter_mut().flatten().filter(|a| a.0 == def.owner) {
            *to = role;
        }
        def.owner = role;
        self.put_type(def)?;
        Ok("ALTER TYPE".into())
    }

    pub(super) fn type_schema(&mut self, name: &ObjectName, schema: &Ident) -> Result<String> {
        let mut def = self.own_type(name)?;
        let namespace = self.namespace(&catalog::fold(schema))?;
        privileges::check_namespace(&self.schema, self.ctx.role, namespace, privilege::CREATE)?;
        if def.namespace != namespace {
            self.type_must_be_free(namespace, &def.name)?;
            self.refuse_named_in_text(&def, "moving")?;
            def.namespace = namespace;
            self.put_type(def)?;
        }
        Ok("ALTER TYPE".into())
    }

    pub(super) fn refuse_named_in_text(&self, def: &TypeDef, doing: &str) -> Result<()> {
        match self.named_in_text(&def.name).first() {
            None => Ok(()),
            Some(n) => Err(Error::unsupported(format!(
                "{doing} type \"{}\", which is named in {}",
                def.name,
                self.describe(*n)
            ))),
        }
    }

    pub(super) fn drop_types(
        &mut self,
        names: &[ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<String> {
        let mut roots = vec![];
        for name in names {
            if if_exists && self.find_type(name).is_ok_and(|t| t.is_none()) {
                let what = format!("type \"{name}\" does not exist, skipping");
                self.notice(SqlState([b'0'; 5]), what);
                continue;
            }
            let node = Node::Type(self.own_type(name)?.id);
            if !roots.contains(&node) {
                roots.push(node);
            }
        }
        let shown = match roots.as_slice() {
            [one] => self.describe(*one),
            _ => String::new(),
        };
        self.drop_nodes(&roots, cascade, &shown)?;
        Ok("DROP TYPE".into())
    }

    /// 42501 unless the role may make columns of the type.
    pub(super) fn may_use_type(&self, ty: Type) -> Result<()> {
        let (Type::User(u) | Type::UserArray(u)) = ty else {
            return Ok(());
        };
        let t = self.schema.user_type(u.oid).expect("found by its name");
        self.may_use(&t.def)
    }

    pub(super) fn may_use(&self, ty: &TypeDef) -> Result<()> {
        match privileges::may_use_type(&self.schema, self.ctx.role, ty) {
            true => Ok(()),
            false => Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied for type {}", ty.name),
            )),
        }
    }
}
