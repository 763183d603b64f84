-- The versions of definitions. Written with each change; the oldest are removed, so that an application that changes its
-- definition at every start does not fill the table.

-- name: add
insert into fairlead.definition_versions (definition_id, version, spec, changed_by)
values (%(definition_id)s, %(version)s, %(spec)s, %(changed_by)s) on conflict do nothing;

-- name: trim
delete from fairlead.definition_versions v
where v.definition_id = %(definition_id)s and v.version <= (
    select o.version from fairlead.definition_versions o where o.definition_id = %(definition_id)s
    order by o.version desc offset %(most)s limit 1);

-- name: newest
select version, spec, changed_by, changed_at from fairlead.definition_versions
where definition_id = %(definition_id)s order by version desc limit %(limit)s;
