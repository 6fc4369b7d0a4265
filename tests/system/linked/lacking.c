/* SPDX-License-Identifier: Apache-2.0 */
/* All but one of the functions that twill uses of libfabric, as a library of another version has.
 * None is ever called. */
void fi_getinfo(void);
void fi_freeinfo(void);
void fi_fabric(void);
void fi_strerror(void);

void fi_getinfo(void)
{
}
void fi_freeinfo(void)
{
}
void fi_fabric(void)
{
}
void fi_strerror(void)
{
}
