//! Sequences: CREATE and ALTER SEQUENCE, and those that serial and identity columns make.
//!
//! The definition is schema; the running value is not. RESTART makes a new generation of the sequence, which starts anew.
//!
//! Left out on purpose: temporary and unlogged sequences.

use super::constraints::place;
use super::expr_text;
use super::work::Work;
use crate::catalog::Resolved;
use base::schema::{DefaultFor, Object, Relation, SequenceDef, TableDef};
use base::{ColumnIdx, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{Expr, ObjectName, ObjectNamePart, SequenceOptions, UnaryOperator, Value};

/// What a statement says of a sequence; what it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    pub ty: Option<Type>,
    pub increment: Option<i64>,
    /// `Some(None)`: NO MINVALUE.
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub start: Option<i64>,
    /// `Some(None)`: RESTART without a value.
    pub restart: Option<Option<i64>>,
    pub cache: Option<i64>,
    pub cycle: Option<bool>,
}

impl Work<'_> {
    pub(super) fn create_sequence(
        &mut self,
        name: &ObjectName,
        if_not_exists: bool,
        options: &Options,
        owned_by: Option<&ObjectName>,
    ) -> Result<String> {
        let tag = "CREATE SEQUENCE".to_string();
        let (namespace, name) = self.target_in(name, false)?;
        if if_not_exists && self.taken(namespace, &name) {
            self.skip_existing(&name);
            return Ok(tag);
        }
        self.must_be_free(namespace, &name)?;
        let id = self.oid();
        let mut def = blank(id, namespace, name, self.ctx.role);
        def.acl = self.born_with(DefaultFor::Sequences, def.owner, def.namespace);
        let generation = self.new_generation();
        def.generation = generation;
        apply(&mut def, options, generation, true)?;
        if let Some(owner) = owned_by {
            def.owned_by = self.sequence_owner(&def, owner)?;
        }
        self.put(Object::Sequence(def));
        Ok(tag)
    }

    /// Makes the sequence of a serial or identity column; the text of the column's DEFAULT.
    pub(super) fn column_sequence(
        &mut self,
        table: &TableDef,
        column: usize,
        ty: Type,
        options: &[SequenceOptions],
    ) -> Result<String> {
        let name = self.relation_name(
            table.namespace,
            &table.name,
            &table.columns[column].name,
            "seq",
        );
        let id = self.oid();
        let mut def = blank(id, table.namespace, name, table.owner);
        def.acl = self.born_with(DefaultFor::Sequences, def.owner, def.namespace);
        let mut options = read_options(options)?;
        options.ty = Some(ty);
        let generation = self.new_generation();
        def.generation = generation;
        apply(&mut def, &options, generation, true)?;
        def.owned_by = Some((table.id, column as ColumnIdx));
        let text = expr_text::nextval(self, def.namespace, &def.name);
        self.put(Object::Sequence(def));
        Ok(text)
    }

    /// OWNED BY: `NONE` or a column, in the same schema and of the same owner.
    fn sequence_owner(
        &self,
        def: &SequenceDef,
        owner: &ObjectName,
    ) -> Result<Option<(Oid, ColumnIdx)>> {
        if owner.0.len() == 1 {
            let none = owner.to_string().eq_ignore_ascii_case("none");
            return if none {
                Ok(None)
            } else {
                Err(
                    Error::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
                        .hint("Specify OWNED BY table.column or OWNED BY NONE."),
                )
            };
        }
        let mut table = owner.clone();
        let column = match table.0.pop() {
            Some(ObjectNamePart::Identifier(i)) => crate::catalog::fold(&i),
            _ => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "invalid OWNED BY option",
                ));
            }
        };
        let t = match self.resolve(&table)? {
            Resolved::Relation(Relation::Table(t)) => t,
            other => {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("sequence cannot be owned by relation \"{}\"", other.name()),
                ));
            }
        };
        if t.def.owner != def.owner || t.def.namespace != def.namespace {
            let what = if t.def.owner == def.owner {
                "be in same schema as"
            } else {
                "have same owner as"
            };
            return Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("sequence must {what} table it is linked to"),
            ));
        }
        let at = place(&t.def, &column).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!(
                    "column \"{column}\" of relation \"{}\" does not exist",
                    t.def.name
                ),
            )
        })?;
        Ok(Some((t.def.id, at)))
    }

    /// ALTER SEQUENCE … options.
    pub(super) fn alter_sequence(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        options: &Options,
        owned_by: Option<&ObjectName>,
    ) -> Result<String> {
        let tag = "ALTER SEQUENCE".to_string();
        let found = match self.find(name)? {
            None if if_exists => {
                self.skip_missing(name)?;
                return Ok(tag);
            }
            _ => self.resolve(name)?,
        };
        let Resolved::Relation(Relation::Sequence(s)) = found else {
            return Err(self.wrong_kind(&found, "sequence"));
        };
        self.must_own("sequence", &s.name, s.owner)?;
        let mut def = (*s).clone();
        apply(&mut def, options, self.new_generation(), false)?;
        if let Some(owner) = owned_by {
            if self.is_identity(&def) {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "cannot change ownership of identity sequence",
                )
                .detail(format!(
                    "Sequence \"{}\" is linked to table \"{}\".",
                    def.name,
                    def.owned_by.map_or(String::new(), |(t, _)| self.shown(t))
                )));
            }
            def.owned_by = self.sequence_owner(&def, owner)?;
        }
        self.put(Object::Sequence(def));
        Ok(tag)
    }

    /// A number that no other life of a sequence has, also not one whose transaction was rolled back: what it used up is
    /// remembered under its number.
    fn new_generation(&self) -> u64 {
        let mut bytes = [0; 8];
        (self.ctx.random_bytes)(&mut bytes);
        // JSON readers agree on integers to 53 bits.
        u64::from_le_bytes(bytes) >> 11
    }

    /// Starts a sequence anew from its first value.
    pub(super) fn restart_sequence(&mut self, def: &SequenceDef) {
        let mut def = def.clone();
        def.generation = self.new_generation();
        def.restart = None;
        self.put(Object::Sequence(def));
    }

    /// Changes the sequence of an identity column.
    pub(super) fn change_sequence(&mut self, id: Oid, options: &Options) -> Result<()> {
        let Some(Relation::Sequence(s)) = self.schema.relation(id).cloned() else {
            return Err(Error::internal("an identity column without its sequence"));
        };
        let mut def = (*s).clone();
        apply(&mut def, options, self.new_generation(), false)?;
        self.put(Object::Sequence(def));
        Ok(())
    }

    fn is_identity(&self, def: &SequenceDef) -> bool {
        def.owned_by.is_some_and(|(t, c)| {
            self.schema
                .table(t)
                .is_some_and(|t| t.def.columns[c as usize].identity.is_some())
        })
    }

    pub(super) fn skip_missing(&mut self, name: &ObjectName) -> Result<()> {
        let (ns, rel) = self.split(name)?;
        let shown = ns.map_or(rel.clone(), |n| format!("{n}.{rel}"));
        self.notice(
            SqlState([b'0'; 5]),
            format!("relation \"{shown}\" does not exist, skipping"),
        );
        Ok(())
    }
}

fn blank(id: Oid, namespace: Oid, name: String, owner: Oid) -> SequenceDef {
    SequenceDef {
        id,
        namespace,
        name,
        owner,
        type_oid: Type::Int8.oid(),
        start: 1,
        increment: 1,
        min: 1,
        max: i64::MAX,
        cycle: false,
        cache: 1,
        owned_by: None,
        generation: 0,
        restart: None,
        acl: vec![],
    }
}

fn sequence_type(ty: Type) -> Result<Type> {
    match ty {
        Type::Int2 | Type::Int4 | Type::Int8 => Ok(ty),
        _ => Err(invalid(
            "sequence type must be smallint, integer, or bigint",
        )),
    }
}

fn range(ty: Type) -> (i64, i64) {
    match ty {
        Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Puts the options into the definition, by PostgreSQL's rules (`init_params`); 22023.
fn apply(def: &mut SequenceDef, o: &Options, generation: u64, fresh: bool) -> Result<()> {
    let old = Type::from_oid(def.type_oid).expect("sequences have integer types");
    let ty = o.ty.map_or(Ok(old), sequence_type)?;
    let (lowest, highest) = range(ty);
    // Bounds that were the old type's own become the new type's.
    let (mut reset_min, mut reset_max) = (false, false);
    if o.ty.is_some() && ty != old && !fresh {
        reset_max =
            def.increment > 0 && def.max == range(old).1 || def.increment < 0 && def.max == -1;
        reset_min =
            def.increment < 0 && def.min == range(old).0 || def.increment > 0 && def.min == 1;
    }
    def.type_oid = ty.oid();
    if let Some(i) = o.increment {
        if i == 0 {
            return Err(invalid("INCREMENT must not be zero"));
        }
        def.increment = i;
    }
    let up = def.increment > 0;
    match o.max {
        Some(Some(m)) => def.max = m,
        Some(None) => def.max = if up { highest } else { -1 },
        None if fresh || reset_max => def.max = if up { highest } else { -1 },
        None => {}
    }
    match o.min {
        Some(Some(m)) => def.min = m,
        Some(None) => def.min = if up { 1 } else { lowest },
        None if fresh || reset_min => def.min = if up { 1 } else { lowest },
        None => {}
    }
    let name = crate::types::typename::format_type(ty, -1);
    if !(lowest..=highest).contains(&def.max) {
        return Err(invalid(format!(
            "MAXVALUE ({}) is out of range for sequence data type {name}",
            def.max
        )));
    }
    if !(lowest..=highest).contains(&def.min) {
        return Err(invalid(format!(
            "MINVALUE ({}) is out of range for sequence data type {name}",
            def.min
        )));
    }
    if def.min >= def.max {
        return Err(invalid(format!(
            "MINVALUE ({}) must be less than MAXVALUE ({})",
            def.min, def.max
        )));
    }
    match o.start {
        Some(s) => def.start = s,
        None if fresh => def.start = if up { def.min } else { def.max },
        None => {}
    }
    let bounds = |what: &str, v: i64| {
        if v < def.min {
            return Err(invalid(format!(
                "{what} value ({v}) cannot be less than MINVALUE ({})",
                def.min
            )));
        }
        if v > def.max {
            return Err(invalid(format!(
                "{what} value ({v}) cannot be greater than MAXVALUE ({})",
                def.max
            )));
        }
        Ok(())
    };
    bounds("START", def.start)?;
    if let Some(to) = o.restart {
        let to = to.unwrap_or(def.start);
        bounds("RESTART", to)?;
        def.restart = Some(to);
        def.generation = generation;
    }
    if let Some(c) = o.cache {
        if c < 1 {
            return Err(invalid(format!("CACHE ({c}) must be greater than zero")));
        }
        def.cache = c;
    }
    if let Some(c) = o.cycle {
        def.cycle = c;
    }
    Ok(())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

pub(super) fn read_options(options: &[SequenceOptions]) -> Result<Options> {
    let mut o = Options::default();
    for option in options {
        match option {
            SequenceOptions::IncrementBy(e, _) => once(&mut o.increment, number(e)?)?,
            SequenceOptions::MinValue(e) => once(&mut o.min, e.as_ref().map(number).transpose()?)?,
            SequenceOptions::MaxValue(e) => once(&mut o.max, e.as_ref().map(number).transpose()?)?,
            SequenceOptions::StartWith(e, _) => once(&mut o.start, number(e)?)?,
            SequenceOptions::Cache(e) => once(&mut o.cache, number(e)?)?,
            // The parser's flag is NO CYCLE.
            SequenceOptions::Cycle(no) => once(&mut o.cycle, !no)?,
        }
    }
    Ok(o)
}

/// 42601 for an option that stands twice.
pub(super) fn once<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "conflicting or redundant options",
        )),
    }
}

fn number(e: &Expr) -> Result<i64> {
    let bad = || invalid(format!("invalid sequence parameter: {e}"));
    match e {
        Expr::Value(v) => match &v.value {
            Value::Number(n, _) => n.parse().map_err(|_| bad()),
            _ => Err(bad()),
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match &**expr {
            Expr::Value(v) => format!("-{v}").parse().map_err(|_| bad()),
            _ => Err(bad()),
        },
        Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr,
        } => number(expr),
        _ => Err(bad()),
    }
}
