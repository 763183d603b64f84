-- Views belong to a tenant, or (null) to super admins who look at all tenants; their number is bounded.

-- name: visible
-- The shared views of a page, and the user's own.
select id, tenant_id, page, name, query, is_shared, owner, owner_id from fairlead.saved_views
where tenant_id is not distinct from %(tenant_id)s and page = %(page)s and (is_shared or owner_id = %(owner_id)s)
order by lower(name), id;

-- name: get
select id, tenant_id, page, name, query, is_shared, owner, owner_id from fairlead.saved_views
where id = %(id)s and tenant_id is not distinct from %(tenant_id)s and (is_shared or owner_id = %(owner_id)s);

-- name: count
select count(*) from fairlead.saved_views where tenant_id is not distinct from %(tenant_id)s;

-- name: add
-- No row if the name is taken.
insert into fairlead.saved_views (tenant_id, page, name, query, is_shared, owner, owner_id)
values (%(tenant_id)s, %(page)s, %(name)s, %(query)s, %(is_shared)s, %(owner)s, %(owner_id)s)
on conflict do nothing
returning id, tenant_id, page, name, query, is_shared, owner, owner_id;

-- name: rename
update fairlead.saved_views set name = %(name)s where id = %(id)s;

-- name: remove
delete from fairlead.saved_views where id = %(id)s;
