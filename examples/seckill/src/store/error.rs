//! What goes wrong with a database, as far as a caller can act on it.

use std::fmt;

use sqlx::migrate::MigrateError;

/// A statement failed.
#[derive(Debug)]
pub(crate) struct StoreError(Box<sqlx::Error>);

impl StoreError {
    /// Whether the database is away, too busy or on its way down: the same may work later.
    pub(crate) fn is_unavailable(&self) -> bool {
        match &*self.0 {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(told) => told.code().is_some_and(|code| passes(&code)),
            _ => false,
        }
    }

    /// Whether a row of that name is there already.
    pub(super) fn is_taken(&self) -> bool {
        matches!(&*self.0, sqlx::Error::Database(told) if told.is_unique_violation())
    }
}

/// Codes of PostgreSQL (five characters) and SQLite (a number) for what is over some time later.
fn passes(code: &str) -> bool {
    // No connection; too many of them; going down or starting; a deadlock; no end in time.
    let postgres = ["08", "53", "57P", "40", "57014"];
    // SQLITE_BUSY, SQLITE_LOCKED, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN: the lowest byte tells.
    let sqlite = [5, 6, 10, 13, 14];
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => sqlite.contains(&(number & 0xff)),
        _ => postgres.iter().any(|class| code.starts_with(class)),
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            sqlx::Error::PoolTimedOut => f.write_str("the database does not answer"),
            sqlx::Error::Database(told) => f.write_str(told.message()),
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self(Box::new(error))
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        Self(Box::new(sqlx::Error::from(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_away_is_told_apart() {
        for error in [
            sqlx::Error::PoolTimedOut,
            sqlx::Error::PoolClosed,
            sqlx::Error::Io(std::io::ErrorKind::ConnectionRefused.into()),
        ] {
            assert!(StoreError::from(error).is_unavailable());
        }
        assert!(!StoreError::from(sqlx::Error::RowNotFound).is_unavailable());
        for code in [
            "5", "261", "517", "57P01", "08006", "53300", "40P01", "57014",
        ] {
            assert!(passes(code), "{code}");
        }
        for code in ["1", "19", "1555", "23505", "42P01"] {
            assert!(!passes(code), "{code}");
        }
    }
}
