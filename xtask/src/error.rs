//! What a step answers: a value, or a text for a person.
//!
//! Left out on purpose: kinds of errors. No caller reacts to one.

/// Errors here are only ever shown to a person, so they are text.
pub type Result<T> = std::result::Result<T, String>;

/// For subcommands without options.
pub fn no_arguments(args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(other) => Err(format!("unexpected argument `{other}`")),
    }
}
