//! The error that a client sees: SQLSTATE, message, and the fields that tools parse.
//!
//! An error kind is its SQLSTATE; code reacts to kinds through the methods on [`SqlState`].

use compact_str::CompactString;
use std::fmt;

/// Five characters of SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub [u8; 5]);

macro_rules! states {
    ($($name:ident $code:literal;)*) => {
        impl SqlState { $(pub const $name: SqlState = SqlState(*$code);)* }

        #[cfg(test)]
        const ALL: &[SqlState] = &[$(SqlState::$name),*];
    };
}

states! {
    WARNING b"01000";
    NO_DATA b"02000";
    CONNECTION_FAILURE b"08006";
    PROTOCOL_VIOLATION b"08P01";
    FEATURE_NOT_SUPPORTED b"0A000";
    INVALID_GRANT_OPERATION b"0LP01";
    CARDINALITY_VIOLATION b"21000";
    SEQUENCE_LIMIT b"2200H";
    STRING_DATA_RIGHT_TRUNCATION b"22001";
    NUMERIC_VALUE_OUT_OF_RANGE b"22003";
    NULL_VALUE_NOT_ALLOWED b"22004";
    INVALID_DATETIME_FORMAT b"22007";
    DATETIME_FIELD_OVERFLOW b"22008";
    INVALID_TIME_ZONE b"22009";
    SUBSTRING_ERROR b"22011";
    INVALID_PRECEDING_OR_FOLLOWING_SIZE b"22013";
    INVALID_ARGUMENT_FOR_NTILE b"22014";
    INVALID_ARGUMENT_FOR_NTH_VALUE b"22016";
    DIVISION_BY_ZERO b"22012";
    INVALID_ARGUMENT_FOR_LOG b"2201E";
    INVALID_ARGUMENT_FOR_POWER b"2201F";
    INVALID_REGULAR_EXPRESSION b"2201B";
    INVALID_LIMIT b"2201W";
    INVALID_OFFSET b"2201X";
    INVALID_PARAMETER_VALUE b"22023";
    INVALID_ESCAPE_SEQUENCE b"22025";
    STRING_DATA_LENGTH_MISMATCH b"22026";
    CHARACTER_NOT_IN_REPERTOIRE b"22021";
    ARRAY_SUBSCRIPT_ERROR b"2202E";
    INVALID_TEXT_REPRESENTATION b"22P02";
    INVALID_BINARY_REPRESENTATION b"22P03";
    BAD_COPY_FILE_FORMAT b"22P04";
    NOT_NULL_VIOLATION b"23502";
    FOREIGN_KEY_VIOLATION b"23503";
    UNIQUE_VIOLATION b"23505";
    CHECK_VIOLATION b"23514";
    ACTIVE_SQL_TRANSACTION b"25001";
    READ_ONLY_SQL_TRANSACTION b"25006";
    NO_ACTIVE_SQL_TRANSACTION b"25P01";
    IN_FAILED_SQL_TRANSACTION b"25P02";
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT b"25P03";
    INVALID_STATEMENT_NAME b"26000";
    INVALID_AUTHORIZATION b"28000";
    INVALID_PASSWORD b"28P01";
    DEPENDENT_OBJECTS_STILL_EXIST b"2BP01";
    INVALID_CURSOR_NAME b"34000";
    INVALID_CATALOG_NAME b"3D000";
    INVALID_SCHEMA_NAME b"3F000";
    INVALID_SAVEPOINT b"3B001";
    SERIALIZATION_FAILURE b"40001";
    STATEMENT_COMPLETION_UNKNOWN b"40003";
    DEADLOCK_DETECTED b"40P01";
    INSUFFICIENT_PRIVILEGE b"42501";
    SYNTAX_ERROR b"42601";
    INVALID_NAME b"42602";
    INVALID_COLUMN_DEFINITION b"42611";
    NAME_TOO_LONG b"42622";
    DUPLICATE_COLUMN b"42701";
    AMBIGUOUS_COLUMN b"42702";
    UNDEFINED_COLUMN b"42703";
    UNDEFINED_OBJECT b"42704";
    DUPLICATE_OBJECT b"42710";
    DUPLICATE_ALIAS b"42712";
    DUPLICATE_FUNCTION b"42723";
    AMBIGUOUS_FUNCTION b"42725";
    GROUPING_ERROR b"42803";
    DATATYPE_MISMATCH b"42804";
    WRONG_OBJECT_TYPE b"42809";
    INVALID_FOREIGN_KEY b"42830";
    CANNOT_COERCE b"42846";
    UNDEFINED_FUNCTION b"42883";
    GENERATED_ALWAYS b"428C9";
    UNDEFINED_TABLE b"42P01";
    UNDEFINED_PARAMETER b"42P02";
    DUPLICATE_CURSOR b"42P03";
    DUPLICATE_DATABASE b"42P04";
    DUPLICATE_PREPARED_STATEMENT b"42P05";
    DUPLICATE_SCHEMA b"42P06";
    DUPLICATE_TABLE b"42P07";
    AMBIGUOUS_PARAMETER b"42P08";
    INVALID_COLUMN_REFERENCE b"42P10";
    INVALID_RECURSION b"42P19";
    WINDOWING_ERROR b"42P20";
    INDETERMINATE_DATATYPE b"42P18";
    INVALID_TABLE_DEFINITION b"42P16";
    INVALID_OBJECT_DEFINITION b"42P17";
    WITH_CHECK_OPTION_VIOLATION b"44000";
    INSUFFICIENT_RESOURCES b"53000";
    DISK_FULL b"53100";
    OUT_OF_MEMORY b"53200";
    TOO_MANY_CONNECTIONS b"53300";
    PROGRAM_LIMIT_EXCEEDED b"54000";
    STATEMENT_TOO_COMPLEX b"54001";
    TOO_MANY_COLUMNS b"54011";
    TOO_MANY_ARGUMENTS b"54023";
    OBJECT_NOT_IN_PREREQUISITE_STATE b"55000";
    OBJECT_IN_USE b"55006";
    CANT_CHANGE_RUNTIME_PARAM b"55P02";
    CONFIGURATION_LIMIT_EXCEEDED b"53400";
    LOCK_NOT_AVAILABLE b"55P03";
    QUERY_CANCELED b"57014";
    ADMIN_SHUTDOWN b"57P01";
    CRASH_SHUTDOWN b"57P02";
    CANNOT_CONNECT_NOW b"57P03";
    SYSTEM_ERROR b"58000";
    IO_ERROR b"58030";
    SNAPSHOT_TOO_OLD b"72000";
    INTERNAL_ERROR b"XX000";
    DATA_CORRUPTED b"XX001";
}

impl SqlState {
    /// The five characters.
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).expect("SQLSTATE is ASCII")
    }

    /// Whether running the whole transaction again may succeed: 40001 and 40P01.
    pub fn is_retryable(&self) -> bool {
        matches!(
            *self,
            SqlState::SERIALIZATION_FAILURE | SqlState::DEADLOCK_DETECTED
        )
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// An error with the fields of PostgreSQL's ErrorResponse. One pointer wide.
#[derive(Clone, Debug)]
pub struct Error(Box<ErrorFields>);

/// What an [`Error`] carries; empty strings are absent fields.
#[derive(Clone, Debug)]
pub struct ErrorFields {
    pub code: SqlState,
    pub message: String,
    pub detail: String,
    pub hint: String,
    /// What the server was at, beyond the statement: which line of a COPY, which parameter.
    pub context: String,
    /// 1-based character position in the statement, 0 for none.
    pub position: usize,
    pub schema: CompactString,
    pub table: CompactString,
    pub column: CompactString,
    pub constraint: CompactString,
    /// The function of PostgreSQL's source, where drivers know an error by it.
    pub routine: &'static str,
}

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of this SQLSTATE and primary message.
    pub fn new(code: SqlState, message: impl Into<String>) -> Error {
        Error(Box::new(ErrorFields {
            code,
            message: message.into(),
            detail: String::new(),
            hint: String::new(),
            context: String::new(),
            position: 0,
            schema: CompactString::default(),
            table: CompactString::default(),
            column: CompactString::default(),
            constraint: CompactString::default(),
            routine: "",
        }))
    }

    /// 0A000 for something PostgreSQL has and Canon has not.
    pub fn unsupported(what: impl fmt::Display) -> Error {
        Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("{what} is not supported"),
        )
    }

    /// XX000: a broken promise of our own code.
    pub fn internal(what: impl Into<String>) -> Error {
        Error::new(SqlState::INTERNAL_ERROR, what)
    }

    /// The same error with another primary message.
    pub fn message(mut self, message: impl Into<String>) -> Error {
        self.0.message = message.into();
        self
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = detail.into();
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = hint.into();
        self
    }

    pub fn context(mut self, context: impl Into<String>) -> Error {
        self.0.context = context.into();
        self
    }

    pub fn at(mut self, position: usize) -> Error {
        self.0.position = position;
        self
    }

    pub fn table(mut self, schema: &str, table: &str) -> Error {
        self.0.schema = schema.into();
        self.0.table = table.into();
        self
    }

    pub fn column(mut self, column: &str) -> Error {
        self.0.column = column.into();
        self
    }

    pub fn constraint(mut self, constraint: &str) -> Error {
        self.0.constraint = constraint.into();
        self
    }

    pub fn routine(mut self, routine: &'static str) -> Error {
        self.0.routine = routine;
        self
    }

    /// The SQLSTATE.
    pub fn code(&self) -> SqlState {
        self.0.code
    }

    /// All fields, for the wire.
    pub fn fields(&self) -> &ErrorFields {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)?;
        if !self.0.detail.is_empty() {
            write!(f, " ({})", self.0.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait or a restart is no error: every code is one that a client may see.
    #[test]
    fn codes_are_of_digits_and_capitals() {
        for state in ALL {
            let plain = |b: &u8| b.is_ascii_digit() || b.is_ascii_uppercase();
            assert!(state.0.iter().all(plain), "{state}");
        }
    }
}
