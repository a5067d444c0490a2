//! Which part of the story is told.

use clap::Args;

use crate::service::LockKind;

/// The story.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct StoryArgs {
    /// Tells this step alone.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) lock: Option<LockKind>,
}
