"""The collect stage: a task's episodes become shards."""
