"""The trajectory store: ragged episodes in ordinary Zarr v3 groups, committed so that nothing is ever lost.

layout      what lies where in a shard, and how a commit group is planned
groups      commit groups: episodes one after another, encoded
codec       one chunk to bytes and back
files       durable writes, safe paths
remote      paths at a URL, for reading
writer      appends commit groups to one shard
chunks      chunks of an array, read directly where they are as we wrote them, else through zarr
reader      reads shards and splits, and compares them with their checksums
slab        keeps the episodes that training walks through in RAM, never the whole set
manifest    the file that links the stages of a run
integrity   checks every chunk and row; quarantines what is damaged

Nothing here imports torch or memup_cli.
"""
